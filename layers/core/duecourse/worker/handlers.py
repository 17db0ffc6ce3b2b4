"""Handlers of a user's modules, by the kinds that they run."""

import importlib
from collections.abc import Iterable, Iterator

from duecourse.errors import FieldError, InvalidHandler, InvalidSettings
from duecourse.handler import TaskHandler

NO_KIND = 'names no kind: write @task_handler(kind="report"), or @report.handler of a Kind'


def find_handlers(modules: Iterable[str]) -> dict[str, TaskHandler]:
    """Import the modules, and answer the handlers in their namespaces, by kind.

    Raises InvalidSettings where a module cannot be imported or has none, where a handler names no kind, and where two
    name the same.
    """
    found: dict[str, TaskHandler] = {}
    problems: list[FieldError] = []
    for name in modules:
        handlers = dict(_handlers_of(name))
        if not handlers:
            problems.append(FieldError(f"--import {name}", "has no handler: decorate a function with @task_handler"))
        for place, handler in handlers.items():
            other = found.setdefault(handler.kind, handler) if handler.kind else None
            if other is None:
                problems.append(FieldError(place, NO_KIND))
            elif other is not handler:
                problems.append(FieldError(place, f"names the kind {handler.kind}, as another handler does"))
    if problems:
        raise InvalidSettings(problems)
    return found


def _handlers_of(name: str) -> Iterator[tuple[str, TaskHandler]]:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        problem = f"cannot be imported: {type(error).__name__}: {error}. The folder of your code must be the working "
        raise InvalidSettings([FieldError(f"--import {name}", f"{problem}folder, or on PYTHONPATH")]) from error
    except InvalidHandler as error:
        raise InvalidSettings([FieldError(f"--import {name}", str(error))]) from error
    for attribute, value in vars(module).items():
        if isinstance(value, TaskHandler):
            yield f"{name}.{attribute}", value
