"""Functions of the template, found by name, and their invocation in a stack: the running one, or one made for it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import urllib3

from ..errors import HarnessError
from ..harness import state
from ..harness.intrinsics import Addresses
from ..harness.options import PARAMETERS, Options, Precision
from ..harness.template import Function, Template
from ..project.place import here
from . import console


class InvokeResult(NamedTuple):
    """Result of an invoke: the payload as text, the function's error if any, the time in milliseconds."""

    payload: str
    error: str | None
    took_ms: float


@contextmanager
def lambda_service(folder: Path | None) -> Iterator[str]:
    """The URL of Lambda's Invoke API: of the stack that uses the state folder, else of one started for this.

    Without a folder it is one whose ledger goes with it.
    """
    found = folder and state.running(folder)
    if found:
        yield str(found["lambda"])
        return
    from ..harness.stack import Stack  # boto3, pika and the embedded store come along: a command may do without

    with Stack(
        Options(template=here().to_run(), progress=console.progress, state=folder, precision=Precision.TICK, tick=0),
        notice=console.notice,
    ) as stack:
        yield stack.lambda_url


def invoke(service: str, function: str, event: bytes) -> InvokeResult:
    """Invoke a function and wait. Raises HarnessError where the service rejects it."""
    began = time.perf_counter()
    path = f"{service}/2015-03-31/functions/{quote(function, safe='')}/invocations"
    with urllib3.PoolManager(retries=False) as http:
        response = http.request("POST", path, body=event, headers={"Content-Type": "application/json"})
    took_ms = (time.perf_counter() - began) * 1000
    text = response.data.decode()
    if response.status != 200:
        raise HarnessError(f"{function}: {response.status} {text}")
    return InvokeResult(text, response.headers.get("X-Amz-Function-Error"), took_ms)


def function_named(word: str) -> str:
    """Name of the template's function with this name, logical id or folder. Raises HarnessError."""
    found = functions_by_name().get(word)
    if found is None:
        every = sorted({f"{one.code.name} ({one.name})" for one in functions_by_name().values()})
        raise HarnessError(f"template.yaml has no function {word}; its functions: {', '.join(every)}")
    return found.name


@cache
def functions_by_name() -> dict[str, Function]:
    """The template's functions by name, logical id and folder."""
    described = Template(here().to_run(), Addresses("", "", ""), PARAMETERS).functions
    return {key: function for function in described for key in (function.code.name, function.logical_id, function.name)}
