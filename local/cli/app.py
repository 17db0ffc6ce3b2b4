"""The command line: one module a command, registered here."""

import typer

from ..demo.command import demo
from .built import built
from .invoke import invoke
from .new import new
from .rabbitmq import rabbitmq
from .replay import replay
from .reshard import reshard
from .run import AS_GIVEN, run
from .sent import sent
from .show import show
from .up import up
from .upgrade import upgrade

app = typer.Typer(
    help="Run the stack of template.yaml on this machine: functions, HTTP API, schedules, bridge, Redis, AWS services.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
for command in (up, invoke, replay, show, sent, new, reshard, upgrade, built, demo, rabbitmq):
    app.command()(command)
app.command(context_settings=AS_GIVEN)(run)
