"""Options of a stack."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING

from ..project import bundle
from .aws.authorizer import Auth

if TYPE_CHECKING:
    from ..local_page import LocalPage

LOOPBACK = "localhost,127.0.0.0/8,::1"
"""Destinations on this machine, as exceptions for the template's parameter EgressAllow."""
PARAMETERS = {"MailFrom": "reminders@example.com", "IntakeQueue": "sqs"}
"""Parameters in place of a deployment's: mail is sent to the emulator, which has a queue for new tasks."""


class Precision(StrEnum):
    """Component that serves rings, as in the template's parameter."""

    TICK = "tick"
    LINGER = "linger"
    BRIDGE = "bridge"


class Egress(StrEnum):
    """Destinations of calls besides public addresses: servers of this machine, or as deployed, none."""

    LOOPBACK = "loopback"
    STRICT = "strict"


class Secrets(StrEnum):
    """Time at which functions get the URLs of Redis and of RabbitMQ, as in the template's parameter."""

    DEPLOY = "deploy"
    RUNTIME = "runtime"


def _discard(_: str) -> None:
    """Discard a line of progress."""


class Clock(StrEnum):
    """Clock of the stack: this machine's, or one that only `duecourse advance` moves."""

    WALL = "wall"
    TRAVEL = "travel"


LINGER_FOR_TICK = 63 / 60
"""The template's own proportion."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options for running a template; port 0 picks a free one, None leaves a thing to the template or the harness."""

    template: Path = field(default_factory=bundle.template)
    parameters: Mapping[str, str] = field(default_factory=lambda: dict(PARAMETERS))
    """Values of the template's parameters besides Precision; the others have their defaults.

    An EgressAllow here is used in place of that of `egress`.
    """
    port: int = 0
    lambda_port: int = 0
    aws_port: int = 0
    page_port: int | None = 0
    page: "Callable[[str, Path, socket], LocalPage] | None" = None
    """Makes the operators' page, of the API's URL, the state folder and the socket; None for no page."""
    tick: float | None = None
    """Seconds between two ticks of the product; None: as the template says, 0: no ticks and no schedules."""
    precision: Precision = Precision.BRIDGE
    clock: Clock = Clock.WALL
    egress: Egress = Egress.LOOPBACK
    secrets: Secrets = Secrets.DEPLOY
    """RUNTIME: the emulator's Secrets Manager has the URLs, and functions and bridge read them there."""
    auth: Auth = Auth.NONE
    """Proof of identity that the HTTP API demands."""
    allow_hosts: Sequence[str] = ()
    """Further names of this machine that requests may come by (`Host`), such as a container's name for it."""
    freeze: bool = False
    """Stop function processes between invokes, as Lambda does."""
    store: str | None = None
    aws: str | None = None
    amqp: str | None = None
    """A RabbitMQ for functions with MQ events, and for tasks that are handed to amqp: targets."""
    state: Path | None = None
    """None: a folder that goes with the stack."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for the functions and the bridge; they win over the template's."""
    on_line: Callable[[str, str], None] | None = None
    """Gets the logs line by line, besides their files: a log's name, and the line."""
    progress: Callable[[str], None] = _discard
    """Gets a line before something that takes seconds."""
    warm: Collection[str] | None = None
    """Logical ids of the functions that start with the stack, None for all; the others start at their first event."""
    init_limit: float = 10.0
    idle_limit: float = 300.0
    """Seconds without an invocation after which a process ends, where its function has another."""
    retry_waits: tuple[float, ...] = (1.0, 2.0)
    """Seconds before each retry of a failed asynchronous invocation (Lambda's own: 60 and 120)."""
    pure_python: bool = False
    """Use the substitute for the runtime client's native part even where that part is installed."""

    @property
    def packages(self) -> Path:
        """Folder of what the functions' own requirements list; it outlives the stack."""
        return self.template.parent / bundle.FOLDER / "packages"

    def given(self) -> dict[str, str]:
        """Values of the template's parameters."""
        allowed = {"EgressAllow": LOOPBACK} if self.egress == Egress.LOOPBACK else {}
        return {**allowed, **self.parameters, "Precision": self.precision}

    def linger(self) -> dict[str, str]:
        """The setting of a tick's linger, if ticks have another pace than the template's: a little beyond the next."""
        if self.precision == Precision.LINGER and self.tick:
            return {"DUECOURSE_TICK_LINGER": f"{self.tick * LINGER_FOR_TICK:g}"}
        return {}
