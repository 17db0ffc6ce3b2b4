"""The environment that functions of one process share: what they would have each, united."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from ..process.environment import Environment
from ..stack.problems import HarnessError
from ..template.model import LOG_FORMAT, LOG_GROUP, LOG_LEVEL, Function

OF_LOGS = (LOG_FORMAT, LOG_LEVEL, LOG_GROUP)


def united(described: Iterable[Function], environment: Environment) -> dict[str, str]:
    """Every function's variables; one that is empty here and set there is set.

    Variables of a LoggingConfig that differ are left out: logged.py applies each function's own. Raises HarnessError
    where two functions want different values of another variable.
    """
    wanted: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for function in described:
        for name, value in environment.settings(function).items():
            wanted[name].setdefault(value, []).append(function.name)
    values = {name: [value for value in found if value] or [""] for name, found in wanted.items()}
    for name, found in values.items():
        if len(found) > 1 and name not in OF_LOGS:
            raise HarnessError(_torn(name, wanted[name]))
    return {**environment.base(), **{name: found[0] for name, found in values.items() if len(found) == 1}}


def _torn(name: str, found: Mapping[str, list[str]]) -> str:
    told = ", ".join(f"{value!r} for {' and '.join(functions)}" for value, functions in found.items() if value)
    return (
        f"{name} is {told}: functions that are threads of one process share their environment. "
        "Give them one value, or --store redis://…, with which they are processes"
    )


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """This process's environment with `variables`, and without the host's own of AWS; as it was, at the end.

    For users' code and boto3, which read `os.environ`: a process has one. A handler of duecourse's is given an App.
    """
    before = dict(os.environ)
    for name in before:
        if name.startswith("AWS_"):
            del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
