"""The command line: every command, registered in its panel of `--help`.

To add a command, write a function in the file of its group. One that acts on a ledger is decorated `@on_ledger`, and
takes an ApiClient and a Screen. Its examples are in its docstring, and `tests/local/test_command_operators.py` runs
them (COMMANDS). Its place is in PANELS. A command of two words belongs to a Typer of its own, as in `schedules.py`;
`tasks` is one command today. `tests/local/test_command_control_characters.py` and `test_command_usage.py` list every
command. Commands that need Redis itself are in `maintenance.py`, each by a tool of the ledger, and take no
`@on_ledger`.
"""

from typing import Annotated

import typer

from duecourse import __version__

from . import schedules
from .backup import export, repair, restore
from .build import build, built, run_tests
from .credentials import credentials, keyring, signing, token
from .dead import dead, replay
from .demo import demo
from .doctor import doctor
from .history import history
from .maintenance import acl, mend, reshard, rotate
from .page import page
from .project import init, new
from .queues import limits, pause, queues, resume, top
from .rabbitmq import rabbitmq
from .stack import AS_GIVEN, advance, events, invoke, run, sent
from .tasks import add, cancel, move, purge, show, tasks, why
from .up import up
from .usage import Command, Group
from .worker import worker

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
)
PANELS = {
    "A project": (init, new),
    "The stack on this machine": (
        up, advance, invoke, events, sent, token, credentials, keyring, signing, demo, rabbitmq,
    ),
    "Tasks and queues, here or deployed": (
        page, queues, history, top, tasks, show, why, dead, add, move, cancel, replay, purge, pause, resume, limits,
    ),
    "A worker of your own": (worker,),
    "A ledger in Redis": (doctor, export, reshard, mend, rotate, acl),
    "A ledger in a folder": (repair,),
    "A build": (built,),
}  # fmt: skip
for panel, commands in PANELS.items():
    for command in commands:
        app.command(cls=Command, rich_help_panel=panel)(command)
app.command("test", cls=Command, context_settings=AS_GIVEN, rich_help_panel="A project")(run_tests)
app.command(cls=Command, context_settings=AS_GIVEN, rich_help_panel="A project")(build)
app.command(cls=Command, context_settings=AS_GIVEN, rich_help_panel="The stack on this machine")(run)
app.add_typer(schedules.app, name="schedules", rich_help_panel="Tasks and queues, here or deployed")
app.command("import", cls=Command, rich_help_panel="A ledger in Redis")(restore)


def _print_version(version: bool) -> None:
    if version:
        typer.echo(f"duecourse {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    """Write, run and operate delayed, repeated and polled tasks for AWS Lambda and for workers, on a Redis."""
