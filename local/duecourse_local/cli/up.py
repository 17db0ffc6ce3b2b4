"""`up`: start everything, print the lines of the logs that matter, and stay until Ctrl-C."""

import json
import os
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from socket import socket
from typing import Annotated, Any, NamedTuple

import typer

from duecourse.ledger.task_log_lines import LOGGER

from ..harness import state
from ..harness.addresses import MAX_PORT
from ..harness.aws.authorizer import Auth
from ..harness.guard import NAME
from ..harness.options import Clock, Egress, Options, Precision, Secrets
from ..local_page import USUAL_PORT, LocalPage, local_page
from ..project.place import here
from . import console
from .interrupts import staying, until_stopped
from .options import seconds
from .target import LedgerTarget

FRAME = re.compile(r"(START|END|REPORT|INIT_REPORT) ?(RequestId)?.*?(Error Type: (?P<error>\S+))?\s*$")
"""The lines that Lambda puts around an invocation's own."""
LOGGED = re.compile(r"\S+Z (?P<level>[A-Z]+) (?P<message>.*)")
"""A line of the bridge's log."""
UNSAID = ("Runtime.ExitError", "Function.ResponseSizeTooLarge")
"""Errors of invocations that leave no other line."""
COLOURS = {"done": "green", "dead": "red", "failed": "red", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}
ADVICE = "LAMBDA_WARNING: Unhandled exception"
"""Beginning of general advice by Lambda's runtime client, which the error follows."""
CAUSES = ("problem", "error")
"""Fields of a record by which functions of ours say why, beside the message."""
BRIDGE = "bridge"


class LogLine(NamedTuple):
    """A line for people, and what it is: a task's event, or a level of a log."""

    text: str
    kind: str = ""


def print_raw(name: str, line: str) -> None:
    """A log's line as it is."""
    console.err.out(f"{name}  {console.visible(line)}")


def wall() -> str:
    """The time of day."""
    return time.strftime("%H:%M:%S")


class Printer:
    """Prints the logs' lines that say something to people, each with the time of `clock`."""

    def __init__(self) -> None:
        self.clock: Callable[[], str] = wall

    def __call__(self, name: str, line: str) -> None:
        """Print a line, or nothing."""
        shown = for_people(name, line)
        if shown is not None:
            colour = COLOURS.get(shown.kind, "default")
            console.err.print(f"[dim]{self.clock()}[/]  [{colour}]{console.shown(shown.text)}[/]", soft_wrap=True)


def for_people(name: str, line: str) -> LogLine | None:
    """A line of the log called `name` in a person's words; None for one that only fills the file."""
    if ADVICE in line:
        return None
    record = _record(line)
    if record is not None:
        return _of_record(name, record)
    logged = LOGGED.fullmatch(line) if name == BRIDGE else None
    if logged:
        quiet = logged["level"] in ("DEBUG", "INFO")
        return None if quiet else LogLine(f"{name}  {logged['message']}", logged["level"])
    frame = FRAME.match(line)
    if frame:
        return LogLine(f"{name} failed: {frame['error']}", "ERROR") if frame["error"] in UNSAID else None
    if not line.strip() or (name == BRIDGE and line.startswith("bridge ready")):
        return None
    return LogLine(f"{name}  {line}")


def _of_record(name: str, record: dict[str, Any]) -> LogLine | None:
    if record.get("logger") == LOGGER:
        return LogLine(str(record["message"]), str(record.get("event", "")))
    message = record.get("message") or record.get("errorMessage")
    if message is None or record.get("level") == "DEBUG":
        return None
    kind = record.get("exception_name") or record.get("errorType")
    cause = next((record[field] for field in CAUSES if isinstance(record.get(field), str)), None)
    text = f"{name}  {message}" + (f" ({kind})" if kind else "") + (f": {cause}" if cause else "")
    return LogLine(text, str(record.get("level", "")))


def _record(line: str) -> dict[str, Any] | None:
    """A JSON record: metrics, and what functions log; a dict that a function printed has no message and is shown so."""
    try:
        found = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None
    known = isinstance(found, dict) and ({"_aws", "message", "errorMessage"} & found.keys())
    return found if known else None


SHORTEST_TICK_S = 0.1
LOG_TASKS = "DUECOURSE_LOG_TASKS"
SHOWN = "DUECOURSE_STORE, REDIS_URL, or a Redis or Valkey started here"

WITHOUT_PROJECT = """no project here: the stack runs duecourse's own functions alone
  to hand a kind to your worker:    DUECOURSE_TARGETS='{"report": "worker"}' duecourse up
  to add functions of your own:     duecourse init, in an empty folder
"""

HINTS = {
    Auth.NONE: None,
    Auth.IAM: ("auth", "SigV4: duecourse credentials acme"),
    Auth.JWT: ("auth", "a token: duecourse token --tenant acme"),
}
"""Command that prints what a request needs; None where it needs nothing, so that a browser can show the routes."""


def _sensible(tick: float | None) -> float | None:
    if tick is None or tick == 0 or tick >= SHORTEST_TICK_S:
        return tick
    raise typer.BadParameter(f"must be 0, or at least {SHORTEST_TICK_S} seconds")


def _names(names: list[str] | None) -> list[str] | None:
    for name in names or ():
        if not NAME.fullmatch(name.removesuffix(".")):
            raise typer.BadParameter(f"{name!r} must be a name or an IPv4 address, without scheme, port and path")
    return names


Port = Annotated[int, typer.Option(help="Port of the HTTP API; 0 picks a free one.", min=0, max=MAX_PORT)]
LambdaPort = Annotated[int, typer.Option(help="Port of Lambda's Invoke API; 0 picks a free one.", min=0, max=MAX_PORT)]
AwsPort = Annotated[int, typer.Option(help="Port of the AWS emulator; 0 picks a free one.", min=0, max=MAX_PORT)]
PagePort = Annotated[
    int | None,
    typer.Option(help="Port of the operators' page; 0 picks a free one.", min=0, max=MAX_PORT, show_default=USUAL_PORT),
]
Tick = Annotated[
    float | None,
    typer.Option(
        help="Time between ticks, such as 30s, PT30S or seconds; with 0, no function's schedule runs.",
        metavar="DURATION",
        parser=seconds,
        show_default="as the template says",
        callback=_sensible,
    ),
]
By = Annotated[
    Precision,
    typer.Option(help="Part that hears when tasks are due: a bridge, a tick that stays (linger), or none (tick)."),
]
NoBridge = Annotated[bool, typer.Option("--no-bridge", help="Short for --precision tick.")]
To = Annotated[
    Egress,
    typer.Option(
        "--egress",
        help="Addresses that tasks may call besides public ones: this machine's (loopback), or none, as deployed "
        "(strict).",
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(help="Further name of this machine that requests may have as Host; may be repeated.", callback=_names),
]
Proof = Annotated[
    Auth,
    typer.Option(
        help="Proof that the HTTP API demands: none, SigV4 (iam, from duecourse credentials), "
        "or a token (jwt, from duecourse token)."
    ),
]
Time = Annotated[
    Clock,
    typer.Option(
        "--clock",
        help="Clock of the ledger: this machine's (wall), or one in memory that duecourse advance moves (travel).",
    ),
]
Freeze = Annotated[bool, typer.Option("--freeze", help="Stop processes between invocations (SIGSTOP), as Lambda does.")]
Store = Annotated[
    str | None,
    typer.Option(help="URL of the store; with memory:// and leveldb:///… functions are threads.", show_default=SHOWN),
]
Aws = Annotated[
    str | None,
    typer.Option(help="Endpoint of the AWS services.", show_default="AWS_ENDPOINT_URL, or moto's server started here"),
]
Amqp = Annotated[
    str | None,
    typer.Option(help="URL of a RabbitMQ.", show_default="DUECOURSE_AMQP, or none"),
]
State = Annotated[
    Path,
    typer.Option(
        "--state", help="Folder for Redis's data and the logs; kept when the stack stops.", show_default=".duecourse"
    ),
]
SecretsAt = Annotated[
    Secrets,
    typer.Option(help="Way of the URLs to functions: at deployment (deploy), or read from Secrets Manager (runtime)."),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one line of JSON when the stack is ready, and copy all logs to stderr.")
]


def up(  # noqa: PLR0913, PLR0917 - one for each option of the command
    port: Port = 3000,
    lambda_port: LambdaPort = 3001,
    aws_port: AwsPort = 4566,
    page_port: PagePort = None,
    tick: Tick = None,
    precision: By = Precision.BRIDGE,
    no_bridge: NoBridge = False,
    egress: To = Egress.LOOPBACK,
    auth: Proof = Auth.NONE,
    allow_host: AllowHost = None,
    clock: Time = Clock.WALL,
    freeze: Freeze = False,
    store: Store = None,
    aws: Aws = None,
    amqp: Amqp = None,
    secrets: SecretsAt = Secrets.DEPLOY,
    folder: State = state.DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Start the stack, print what happens to tasks, and stay until Ctrl-C.

    Settings of the product (DUECOURSE_…) in this environment reach the functions and the bridge.

    Examples:

        duecourse up

        duecourse up --store redis://127.0.0.1:6379/1 --tick 5

        duecourse up --port 0 --lambda-port 0 --aws-port 0 --json

        duecourse up --clock travel
    """
    printer = Printer()
    options = Options(
        auth=auth, port=port, lambda_port=lambda_port, aws_port=aws_port, tick=tick, freeze=freeze,
        page_port=page_port, page=partial(_page, auth),
        clock=clock,
        precision=_chosen(precision, no_bridge=no_bridge, ticks=tick != 0),
        store=store, aws=aws, amqp=amqp, secrets=secrets, state=folder, allow_hosts=tuple(allow_host or ()),
        template=_template(), egress=egress, progress=console.progress,
        on_line=print_raw if as_json else printer,
        environment={} if as_json else {LOG_TASKS: os.environ.get(LOG_TASKS, "on")},
    )  # fmt: skip
    say = console.print_ready_to_stderr if as_json else console.print_ready
    with until_stopped(_where_kept(folder) if _is_own(store, clock) else ""):
        from ..harness.stack import Stack  # takes most of a second: a Ctrl-C meanwhile is heard

        with Stack(options, say=say, notice=console.notice) as stack, staying():
            if as_json:
                typer.echo(json.dumps(stack.addresses()))
            else:
                printer.clock = stack.travelled or wall
                console.print_ready(*HINTS[auth] or ("docs", f"{stack.api}/docs"))
                console.out.print(
                    f"[bold green]ready[/]: Ctrl-C stops the stack; all logs are in {_near(folder)}/logs",
                    soft_wrap=True,
                )


def _page(auth: Auth, api: str, folder: Path, sock: socket) -> LocalPage:
    """The operators' page of the stack."""
    from .remote_api import stack_api  # urllib3 takes a while, and most commands do without

    return local_page(stack_api({"api": api, "auth": auth}, LedgerTarget(None, None, None, None, None, folder)), sock)


def _template() -> Path:
    with console.problems_shown():
        project = here()
        if not project.exists:
            console.progress(WITHOUT_PROJECT)
        return project.to_run()


def _is_own(store: str | None, clock: Clock) -> bool:
    """True if the stack's own Redis has the tasks."""
    named = store or os.environ.get("DUECOURSE_STORE") or os.environ.get("REDIS_URL")
    return not named and clock == Clock.WALL


def _where_kept(folder: Path) -> str:
    return f"; tasks are kept in {_near(folder)}"


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
