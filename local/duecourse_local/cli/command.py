"""Frame of the commands for operators: shared options, output, confirmation, exit codes.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | the task or queue does not exist, or the request is rejected |
| 2 | an option or a setting is wrong |
| 3 | the store or the API does not answer |
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_type_hints

import typer

from ..errors import HarnessError
from ..harness import state
from . import console
from .api import Document, RequestRejected, Unavailable
from .options import AsJson, Folder, Namespace, Store, Tenant, Token, Url
from .target import LedgerTarget, open_api

FAILED, WRONG, UNAVAILABLE = 1, 2, 3
INVALID = 422


class Screen:
    """Output of a command: a JSON document, or what `show` makes of it for people.

    `target_options` are the options by which another command finds the same ledger.
    """

    def __init__(self, *, as_json: bool, target_options: str = "") -> None:
        self.as_json = as_json
        self.target_options = target_options

    def answer(self, document: Document, show: Callable[[Document], None]) -> None:
        """Print an answer."""
        if self.as_json:
            typer.echo(console.json_text(document))
        else:
            show(document)


def _shared(
    store: Store = None,
    url: Url = None,
    token: Token = None,
    namespace: Namespace = None,
    tenant: Tenant = None,
    folder: Folder = state.DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Options that each command has after its own."""


SHARED = tuple(inspect.signature(_shared).parameters.values())


def on_ledger(command: Callable[..., None]) -> Callable[..., None]:
    """A command of the command line, from a function of an ApiClient, a Screen and the command's own options."""

    def run(**given: Any) -> None:
        shared = {one.name: given.pop(one.name) for one in SHARED}
        as_json = shared.pop("as_json")
        target = LedgerTarget(**shared)
        with exit_codes(), open_api(target) as api:
            console.err.print(f"[dim]{console.shown(api.name)}[/]", soft_wrap=True)
            command(api, Screen(as_json=as_json, target_options=target.as_options), **given)

    own = list(inspect.signature(command).parameters.values())[2:]
    hints = {**get_type_hints(command, include_extras=True), **get_type_hints(_shared, include_extras=True)}
    every = [one.replace(kind=one.KEYWORD_ONLY, annotation=hints[one.name]) for one in (*own, *SHARED)]
    described: Any = run  # Typer reads a command's options from these
    described.__signature__ = inspect.Signature(every)
    described.__annotations__ = {one.name: one.annotation for one in every}
    described.__name__, described.__doc__ = command.__name__, command.__doc__
    return run


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn an error into one line and its exit code."""
    try:
        yield
    except Unavailable as error:
        code, text = UNAVAILABLE, str(error)
    except RequestRejected as error:
        code, text = (WRONG if error.status == INVALID else FAILED), str(error)
    except (HarnessError, OSError) as error:
        code, text = WRONG, str(error)
    except UnicodeEncodeError as error:
        code, text = WRONG, console.no_text(error)
    else:
        return
    console.notice(text)
    raise typer.Exit(code)


def confirm(question: str, *, yes: bool, screen: Screen, instead: str = "") -> bool:
    """Ask before a change that cannot be undone. Raises HarnessError if there is no terminal."""
    if yes:
        return True
    if screen.as_json or not sys.stdin.isatty():
        raise HarnessError(f"{question} Nobody is here to answer: say --yes{instead}")
    return typer.confirm(question, err=True)
