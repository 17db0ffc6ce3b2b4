"""The command line: one module a command, registered here."""

import typer

from local.built import built
from local.demo.command import demo
from local.invoke import invoke
from local.new import new
from local.rabbitmq import rabbitmq
from local.replay import replay
from local.reshard import reshard
from local.run import AS_GIVEN, run
from local.sent import sent
from local.show import show
from local.up import up

app = typer.Typer(
    help="Run the stack of template.yaml on this machine: functions, HTTP API, schedules, bridge, Redis, AWS services.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
for command in (up, invoke, replay, show, sent, new, reshard, built, demo, rabbitmq):
    app.command()(command)
app.command(context_settings=AS_GIVEN)(run)
