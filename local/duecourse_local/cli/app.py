"""The command line: one module a command, registered here."""

from typing import Annotated

import typer

from duecourse import __version__

from ..demo.command import demo
from .ledger import schedules
from .ledger.acl import acl
from .ledger.changes import add, move
from .ledger.dead import dead
from .ledger.doctor import doctor
from .ledger.export import export
from .ledger.limits import limits, pause, resume
from .ledger.listing import queues, tasks, why
from .ledger.many import cancel, purge
from .ledger.mend import mend
from .ledger.repair import repair
from .ledger.replay import replay
from .ledger.reshard import reshard
from .ledger.restore import restore
from .ledger.rotate import rotate
from .ledger.show import show
from .ledger.top import top
from .ledger.upgrade import upgrade
from .ledger.worker import worker
from .project.build import build, run_tests
from .project.built import built
from .project.init import init
from .project.new import new
from .stack.advance import advance
from .stack.credentials import credentials
from .stack.events import events
from .stack.invoke import invoke
from .stack.keyring import keyring
from .stack.rabbitmq import rabbitmq
from .stack.run import AS_GIVEN, run
from .stack.sent import sent
from .stack.signing import signing
from .stack.token import token
from .stack.up import up
from .usage import Command, Group

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
        queues, top, tasks, show, why, dead, add, move, cancel, replay, purge, pause, resume, limits,
    ),
    "A worker of your own": (worker,),
    "A ledger in Redis": (doctor, export, reshard, upgrade, mend, rotate, acl),
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


def _tell(version: bool) -> None:
    if version:
        typer.echo(f"duecourse {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    """Write, run and operate delayed, repeated and polled tasks for AWS Lambda and for workers, on a Redis."""
