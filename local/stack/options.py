"""Options of a stack."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

TEMPLATE = Path(__file__).resolve().parents[2] / "template.yaml"


PARAMETERS = {"MailFrom": "reminders@example.com", "IntakeQueue": "sqs"}
"""Parameters in place of a deployment's: mail is sent to the emulator, which has a queue for new tasks."""


class Precision(StrEnum):
    """Component that serves rings, as in the template's parameter."""

    TICK = "tick"
    LINGER = "linger"
    BRIDGE = "bridge"


LINGER_FOR_TICK = 63 / 60
"""The template's own proportion."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options for running a template; port 0 picks a free one, None leaves a thing to the template or the harness."""

    template: Path = TEMPLATE
    parameters: Mapping[str, str] = field(default_factory=lambda: dict(PARAMETERS))
    """Values of the template's parameters besides Precision; the others have their defaults."""
    port: int = 0
    lambda_port: int = 0
    aws_port: int = 0
    tick: float | None = None
    """Seconds between two ticks of every schedule; None: as the template says, 0: no schedules."""
    precision: Precision = Precision.BRIDGE
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
    hear: Callable[[str, str], None] | None = None
    """Gets the logs line by line, besides their files: a log's name, and the line."""
    init_limit: float = 10.0
    idle_limit: float = 300.0
    """Seconds without an invocation after which a process ends, where its function has another."""
    retry_waits: tuple[float, ...] = (1.0, 2.0)
    """Seconds before each retry of a failed asynchronous invocation (Lambda's own: 60 and 120)."""
    pure_python: bool = False
    """Use the substitute for the runtime client's native part even where that part is installed."""

    def linger(self) -> dict[str, str]:
        """The setting of a tick's linger, if ticks have another pace than the template's: a little beyond the next."""
        if self.precision == Precision.LINGER and self.tick:
            return {"DUECOURSE_TICK_LINGER": f"{self.tick * LINGER_FOR_TICK:g}"}
        return {}
