"""`up`: start everything and stay until Ctrl-C."""

import json
import math
import os
from pathlib import Path
from typing import Annotated

import typer

from ..stack import state
from ..stack.options import Options, Precision
from ..stack.sockets import MAX_PORT
from . import console, screen
from .staying import stay, until_stopped

SHORTEST_TICK_S = 0.1
LOG_TASKS = "DUECOURSE_LOG_TASKS"
SHOWN = "DUECOURSE_STORE, REDIS_URL, or a redis-server started here"


def _sensible(tick: float | None) -> float | None:
    if tick is None or tick == 0 or SHORTEST_TICK_S <= tick < math.inf:
        return tick
    raise typer.BadParameter(f"must be 0, or at least {SHORTEST_TICK_S} seconds")


Port = Annotated[int, typer.Option(help="The HTTP API's port; 0 picks a free one.", min=0, max=MAX_PORT)]
LambdaPort = Annotated[int, typer.Option(help="The port of Lambda's Invoke API.", min=0, max=MAX_PORT)]
AwsPort = Annotated[int, typer.Option(help="The AWS emulator's port.", min=0, max=MAX_PORT)]
Tick = Annotated[
    float | None,
    typer.Option(help="Seconds between ticks; 0 starts none.", show_default="as the template says", callback=_sensible),
]
By = Annotated[Precision, typer.Option(help="Component that serves rings: none (tick), a lingering tick, or a bridge.")]
NoBridge = Annotated[bool, typer.Option("--no-bridge", help="Short for --precision tick.")]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(help="Additional name of this machine that requests may use (Host); may be repeated."),
]
Freeze = Annotated[bool, typer.Option("--freeze", help="Stop processes between invocations (SIGSTOP), as Lambda does.")]
Store = Annotated[
    str | None,
    typer.Option(help="The store's URL; with memory:// and leveldb:///… functions are threads.", show_default=SHOWN),
]
Aws = Annotated[
    str | None,
    typer.Option(help="Endpoint of the AWS services.", show_default="AWS_ENDPOINT_URL, or moto's server started here"),
]
Amqp = Annotated[
    str | None,
    typer.Option(help="A RabbitMQ's URL.", show_default="DUECOURSE_AMQP, or none"),
]
State = Annotated[
    Path,
    typer.Option(
        "--state", help="Folder for Redis's data and the logs; kept when the stack stops.", show_default=".duecourse"
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one line of JSON when the stack is ready, and copy all logs to stderr.")
]


def up(  # noqa: PLR0913, PLR0917 - one for each option of the command
    port: Port = 3000,
    lambda_port: LambdaPort = 3001,
    aws_port: AwsPort = 4566,
    tick: Tick = None,
    precision: By = Precision.BRIDGE,
    no_bridge: NoBridge = False,
    allow_host: AllowHost = None,
    freeze: Freeze = False,
    store: Store = None,
    aws: Aws = None,
    amqp: Amqp = None,
    folder: State = state.DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Start the stack, print what happens to tasks, and stay until Ctrl-C.

    Settings of the product (DUECOURSE_…) in this environment reach the functions and the bridge.

    Examples:

        python -m local up

        python -m local up --port 0 --lambda-port 0 --aws-port 0 --json

        python -m local up --store redis://127.0.0.1:6379/1 --tick 5

        python -m local up --precision linger

        python -m local up --store leveldb:///tmp/duecourse
    """
    options = Options(
        port=port, lambda_port=lambda_port, aws_port=aws_port, tick=tick, freeze=freeze,
        precision=_chosen(precision, no_bridge=no_bridge, ticks=tick != 0),
        store=store, aws=aws, amqp=amqp, state=folder, allow_hosts=tuple(allow_host or ()),
        hear=screen.print_raw if as_json else screen.print_for_people,
        environment={} if as_json else {LOG_TASKS: os.environ.get(LOG_TASKS, "on")},
    )  # fmt: skip
    say = console.say_aside if as_json else console.say
    with until_stopped():
        from ..stack.stack import Stack  # takes most of a second: a Ctrl-C meanwhile is heard

        with Stack(options, say=say, notice=console.notice) as stack:
            if as_json:
                typer.echo(json.dumps(stack.addresses()))
            else:
                console.say("docs", f"{stack.api}/docs")
                console.out.print(
                    f"[bold green]ready[/]: Ctrl-C stops the stack; all logs are in {_near(folder)}/logs",
                    soft_wrap=True,
                )
            stay()


def _near(folder: Path) -> Path:
    """The folder relative to the current one, if it is inside."""
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def _chosen(precision: Precision, *, no_bridge: bool, ticks: bool) -> Precision:
    if precision == Precision.LINGER and no_bridge:
        raise typer.BadParameter(
            "--no-bridge means --precision tick: leave --no-bridge out, --precision linger has no bridge"
        )
    if precision == Precision.LINGER and not ticks:
        raise typer.BadParameter("--precision linger needs ticks: leave --tick 0 out")
    return Precision.TICK if no_bridge else precision
