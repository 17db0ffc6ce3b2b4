"""Long computations of a process take turns by tenant, whatever makes them: by the order of the turns themselves."""

from functools import partial

import pytest

from duecourse.app import App
from duecourse.base import cpu_turns
from duecourse.base.cpu_turns import Turns
from duecourse.base.json_text import dump_json
from duecourse.calls import poll
from duecourse.guard.http_types import HttpAnswer, HttpRequest
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import NewTask, Shard
from duecourse.reminders.send import Letter
from tests.support.clock import START
from tests.support.engine import ample
from tests.support.hostile import DATA
from tests.support.kinds import answer
from tests.support.turns import beside_a_holder, waiting
from tests.support.wait import until
from tests.support.wired import Wire

NOISY = 8
"""Computations of one tenant at a time: fewer than its part of a process's threads."""
QUIET_NEXT = ["noisy", "quiet", *["noisy"] * NOISY]
"""Order of turns while the tenant `noisy` has one: the next one is another tenant's, though it came last."""
LETTER = Letter(
    {
        "reminder": "standup", "subject": "x", "html": "", "lead_ms": 300_000,
        "message": "{{ data.ones" + "|reject('in', data.last)|map('abs')" * 20 + "|list|length }}", "data": DATA,
        "recipient": {"name": "Ada", "channel": "email", "address": "ada@example.com", "time_zone": "UTC"},
    },
    START + 3_600_000,
    "noisy",
)  # fmt: skip
"""A message whose template looks at its time often."""


@pytest.fixture(autouse=True)
def each_computation_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each computation waits for its turn from its first look on, however fast the machine."""
    monkeypatch.setattr(cpu_turns, "QUICK_S", 0)
    monkeypatch.setattr(cpu_turns, "SLICE_S", 0.000_1)


class Watched(Turns):
    """Turns that note whose each of them is, and whether two are at once."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []
        self.running = self.most = 0

    def wait(self, tenant: str, wait_s: float) -> None:
        super().wait(tenant, wait_s)
        self.order.append(tenant)
        self.running += 1
        self.most = max(self.most, self.running)

    def _hand_on(self, tenant: str) -> None:
        self.running -= 1
        super()._hand_on(tenant)


def watch(app: App) -> Watched:
    """Watch the turns that all parts of an App share, which are made once a part asks for them."""
    assert "turns" not in vars(app)
    turns = vars(app)["turns"] = Watched()
    return turns


class Ones:
    """An HttpCaller whose answer is a list that takes long to go through, and too small to wait before it is read."""

    def call(self, _request: HttpRequest) -> HttpAnswer:
        return answer(body=[1] * 10_000)


def add_polls(ledger: EmbeddedLedger, tenant: str, count: int) -> None:
    """Add due polls whose expression looks at its time often."""
    payload = dump_json({"url": "https://api.example/", "interval": "PT1H", "until": "length([?@]|[?@]|[?@]) == `0`"})
    ledger.add([NewTask(id=f"{tenant}-{n}", kind="poll", payload=payload, tenant=tenant) for n in range(count)])


def drain(app: App) -> None:
    """Work what is due, on the threads of the App."""
    app.drainer.drain([Shard("default")], ample)


def write(app: App) -> None:
    """Write the costly message out, in this thread."""
    app.write([LETTER])


def test_polls_of_one_tenant_leave_the_next_turn_to_another_however_many_came_before(
    ledger: EmbeddedLedger, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poll, "WAIT_S", -1)  # on a slow machine too, each waits until its turn has come
    app = wire(ledger=ledger, http=Ones())
    turns = watch(app)
    add_polls(ledger, "noisy", NOISY)
    with beside_a_holder(turns, partial(drain, app)):
        until(lambda: waiting(turns) == NOISY)
        add_polls(ledger, "quiet", 1)
        until(lambda: waiting(turns) == NOISY + 1)
    assert (turns.order, turns.most) == (QUIET_NEXT, 1)


def test_messages_of_one_tenant_leave_the_next_turn_to_a_poll_of_another(ledger: EmbeddedLedger, wire: Wire) -> None:
    app = wire(ledger=ledger, http=Ones())
    turns = watch(app)
    add_polls(ledger, "quiet", 1)

    def drain_later() -> None:
        until(lambda: waiting(turns) == NOISY)
        drain(app)

    with beside_a_holder(turns, *[partial(write, app)] * NOISY, drain_later):
        until(lambda: waiting(turns) == NOISY + 1)
    assert (turns.order, turns.most) == (QUIET_NEXT, 1)
