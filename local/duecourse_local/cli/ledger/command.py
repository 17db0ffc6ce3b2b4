"""Options and exit codes that all commands of operators share.

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
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from ...stack import state
from ...stack.problems import HarnessError
from .. import console
from .place import Asked, Away, Document, Rejected, opened

FAILED, WRONG, AWAY = 1, 2, 3
INVALID = 422
PANEL = "Where"

Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="The store's URL: the command acts on it directly.",
        show_default="the stack that is up here, or DUECOURSE_STORE",
        rich_help_panel=PANEL,
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="URL of a deployed HTTP API; requests are signed with the AWS credentials of this environment.",
        rich_help_panel=PANEL,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        help="Token for the HTTP API, in place of a signature.",
        envvar="DUECOURSE_TOKEN",
        show_envvar=True,
        rich_help_panel=PANEL,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", help="Prefix of every key in the store.", rich_help_panel=PANEL),
]
Tenant = Annotated[
    str | None,
    typer.Option("--tenant", help="Tenant of the tasks; for operators of several.", rich_help_panel=PANEL),
]
Folder = Annotated[
    Path,
    typer.Option(
        "--stack", help="State folder of the stack that is up.", show_default=".duecourse", rich_help_panel=PANEL
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print the answer of the HTTP API as one JSON document.", rich_help_panel=PANEL),
]


class Screen:
    """Output of a command: a JSON document, or what `show` makes of it for people.

    `place` are the options by which another command finds the same ledger.
    """

    def __init__(self, *, as_json: bool, place: str = "") -> None:
        self.as_json = as_json
        self.place = place

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
    """The options that each command has behind its own."""


SHARED = tuple(inspect.signature(_shared).parameters.values())


def on_ledger(command: Callable[..., None]) -> Callable[..., None]:
    """A command of the command line, from a function of a Ledger, a Screen and the command's own options."""

    def run(**given: Any) -> None:
        shared = {one.name: given.pop(one.name) for one in SHARED}
        as_json = shared.pop("as_json")
        asked = Asked(**shared)
        with exit_codes(), opened(asked) as ledger:
            console.err.print(f"[dim]{console.shown(ledger.name)}[/]", soft_wrap=True)
            command(ledger, Screen(as_json=as_json, place=asked.words), **given)

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
    except Away as error:
        code, text = AWAY, str(error)
    except Rejected as error:
        code, text = (WRONG if error.status == INVALID else FAILED), str(error)
    except (HarnessError, OSError) as error:
        code, text = WRONG, str(error)
    else:
        return
    console.notice(text)
    raise typer.Exit(code)


def agreed(question: str, *, yes: bool, screen: Screen, instead: str = "") -> bool:
    """Ask before something that cannot be undone. Raises HarnessError where nobody can answer."""
    if yes:
        return True
    if screen.as_json or not sys.stdin.isatty():
        raise HarnessError(f"{question} Nobody is here to answer: say --yes{instead}")
    return typer.confirm(question, err=True)
