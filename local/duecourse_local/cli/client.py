"""Access of the short commands to a stack: the running one, or one of their own for the time of the command."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import quote

import typer
import urllib3

from duecourse import ledgers
from duecourse.adapters.redis.connect import Client
from duecourse.domain.times import parse_duration
from duecourse.errors import DuecourseError, InvalidSettings, StoreUnavailable
from duecourse.settings import PREFIX, Settings, parse

from ..process.environment import STORE_SECRET
from ..project.place import here
from ..stack import state
from ..stack.options import PARAMETERS, Options, Precision
from ..stack.problems import HarnessError
from ..template.identity import Addresses
from ..template.model import Function
from ..template.reader import Template
from ..threads import SCHEMES
from . import console

NO_STORE = "no stack is up here and no store is named: run duecourse up, give --store, or set DUECOURSE_STORE"
StateUsed = Annotated[
    Path, typer.Option("--state", help="The state folder of the stack to use.", show_default=".duecourse")
]
NamespaceUsed = Annotated[
    str | None,
    typer.Option("--namespace", help="Prefix of every key in Redis.", show_default="DUECOURSE_NAMESPACE, duecourse"),
]
StoreUsed = Annotated[
    str | None,
    typer.Option("--store", help="The store's URL.", show_default="that of the running stack, or DUECOURSE_STORE"),
]


def duration(text: str) -> str:
    """The option's text, if it is a duration. Raises typer.BadParameter."""
    try:
        parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


def seconds(value: str | float) -> float:
    """Seconds of an option that is a duration; of its default too. Raises typer.BadParameter."""
    try:
        return parse_duration(value) / 1000
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


class Invoked(NamedTuple):
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
    from ..stack.stack import Stack  # boto3, pika and the embedded store come along: a command may do without

    with Stack(
        Options(template=here().to_run(), progress=console.progress, state=folder, precision=Precision.TICK, tick=0),
        notice=console.notice,
    ) as stack:
        yield stack.lambda_url


def ledger(store: str | None, folder: Path, *, is_opened: bool = True, **given: str | None) -> Settings:
    """The settings of a ledger: at `store`, else of the stack that uses the state folder, else of this environment.

    Raises HarnessError where they are wrong, or that stack has its ledger to itself. The same where they name no store,
    unless nobody is to open it (`is_opened`).
    """
    up = state.running(folder) or {}
    if not store and str(up.get("store", "")).startswith(SCHEMES):
        raise HarnessError(f"{up['store']} is open in the running stack only: use {up['api']}")
    given |= {
        "store": store or up.get("store"),
        "seal_key": given.get("seal_key") or (state.seal_key(folder) if up else ""),
    }
    named = {PREFIX + name.upper(): value for name, value in given.items() if value}
    if given["store"]:
        named[STORE_SECRET] = ""  # an address in hand wins over a secret
    try:
        found = parse({**os.environ, **named})
    except InvalidSettings as error:
        raise HarnessError(str(error)) from error
    if is_opened and not (found.store or found.store_secret):
        raise HarnessError(NO_STORE)
    return found


@contextmanager
def redis_of(settings: Settings, elsewhere: str) -> Iterator[Client]:
    """Client of the ledger's Redis; after an interruption, the error names the same command to continue.

    Raises HarnessError for the store's errors and, in the words of `elsewhere`, for a ledger in a process or a folder.
    """
    if settings.store.startswith(SCHEMES):
        raise HarnessError(f"{settings.store} {elsewhere}")
    try:
        with ledgers.open_client(settings) as redis:
            yield redis
    except StoreUnavailable as error:
        raise HarnessError(f"{error}\nRun the same command again to continue") from error
    except DuecourseError as error:
        raise HarnessError(str(error)) from error


def invoke(service: str, function: str, event: bytes) -> Invoked:
    """Invoke a function and wait. Raises HarnessError where the service rejects it."""
    began = time.perf_counter()
    path = f"{service}/2015-03-31/functions/{quote(function, safe='')}/invocations"
    with urllib3.PoolManager(retries=False) as http:
        response = http.request("POST", path, body=event, headers={"Content-Type": "application/json"})
    took_ms = (time.perf_counter() - began) * 1000
    text = response.data.decode()
    if response.status != 200:
        raise HarnessError(f"{function}: {response.status} {text}")
    return Invoked(text, response.headers.get("X-Amz-Function-Error"), took_ms)


def function_named(word: str) -> str:
    """Name of the template's function that a name, a logical id or a folder means. Raises HarnessError."""
    found = functions().get(word)
    if found is None:
        every = sorted({f"{one.code.name} ({one.name})" for one in functions().values()})
        raise HarnessError(f"template.yaml has no function {word}; its functions: {', '.join(every)}")
    return found.name


@cache
def functions() -> dict[str, Function]:
    """The template's functions by name, logical id and folder."""
    described = Template(here().to_run(), Addresses("", "", ""), PARAMETERS).functions
    return {key: function for function in described for key in (function.code.name, function.logical_id, function.name)}
