"""With DUECOURSE_WAIT, a request that finds done what it asks for is answered once the replicas have that."""

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from duecourse.base.times import DAY_MS
from duecourse.errors import StoreUnavailable
from duecourse.ledger.api_query import queue_of
from duecourse.ledger.connect import Client, connect
from duecourse.ledger.keys import keys_of
from duecourse.ledger.many_tasks import Act, Bulk
from duecourse.ledger.operation_types import KeyedRequest, KeyedTry, Put, UniqueCondition, WrappedKey
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.reminder import QUEUE, Channel, Recipient, Reminder, Series
from duecourse.ledger.schedule import RRule, Rule, occurrence_id
from duecourse.ledger.task import Shard, Status
from duecourse.reminders.one_off import OneOffReminders
from duecourse.reminders.verbs import Reminders
from duecourse.schedules.calendar import Calendar
from duecourse.schedules.verbs import Schedules
from tests.calls.test_queries import QUERY, asking
from tests.reminders.test_one_off import plainly
from tests.support.clock import START
from tests.support.egress import anyone, anywhere
from tests.support.ledger import LATER_MS, SHARD, new, stored_task
from tests.support.proxies import load_scripts
from tests.support.redis_server import SERVERS, RedisServer, need
from tests.support.schedules import MINUTE, begun, series
from tests.support.seals import seals_of
from tests.support.wait import until

pytestmark = pytest.mark.slow

STARTS_AT = 4_102_444_800_000
"""A day in 2100."""
ADA = Recipient("Ada", Channel.EMAIL, "ada@example.com", "")
MEETING = Reminder("meeting", "Meeting", (60_000,), (ADA,), "Room 4", "", {}, starts_at=STARTS_AT)
WEEKLY = Series(
    "weekly",
    "Weekly",
    (DAY_MS,),
    (ADA,),
    "Room 4",
    "",
    {},
    ("recipients",),
    rule=Rule(RRule("FREQ=WEEKLY"), STARTS_AT),
)
ENDED = KeyedRequest("-", "key", b"f" * 32)


class Frozen(NamedTuple):
    """A primary whose replica is there, and takes nothing; a store that does not care, and one that does."""

    client: Client
    careless: Ledger
    careful: Ledger
    freeze: Callable[[], None]


@pytest.fixture(params=SERVERS)
def frozen(request: pytest.FixtureRequest, replicas_do_not_come: Callable[[], None]) -> Iterator[Frozen]:
    binary, port = need(request.param), free_port()
    with (
        RedisServer(binary, "--port", str(port), "--repl-diskless-sync-delay", "0") as server,
        RedisServer(binary, "--replicaof", "127.0.0.1", str(port)) as replica,
        connect(server.url) as first,
        connect(server.url) as second,
        replica.client() as copy,
        ExitStack() as ending,
    ):
        load_scripts(first)

        def freeze() -> None:
            until(lambda: copy.info("replication")["master_link_status"] == "up")
            ending.callback(replica.process.send_signal, signal.SIGCONT)
            replica.process.send_signal(signal.SIGSTOP)
            replicas_do_not_come()

        yield Frozen(first, Ledger(first), Ledger(second, wait=1), freeze)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


REPEATED: dict[str, Callable[[Ledger], object]] = {
    "a reminder, which is there": lambda ledger: ledger.add(
        [new("r", group="g", delay_ms=LATER_MS)], unique=UniqueCondition("g", 0)
    ),
    "a task, which is there": lambda ledger: ledger.add([new("a", delay_ms=LATER_MS)]),
    "a repeat of an add": lambda ledger: ledger.add([new("a", delay_ms=LATER_MS)], echo=True, since=1),
    "a cancel": lambda ledger: ledger.cancel("default", ["cancelled"]),
    "a cancel of nothing": lambda ledger: ledger.cancel("default", ["nobody"]),
    "a purge of nothing": lambda ledger: ledger.bulk("default", Bulk(Act.DELETE, (Status.DEAD,))),
    "a replay": lambda ledger: ledger.replay("default", ["a"]),
    "a setting that is none": lambda ledger: ledger.configure("default", {"paused": None}),
    "a schedule, which is there": lambda ledger: ledger.put_schedule(series("s"), begun(ledger.now() + LATER_MS)),
    "the end of a schedule": lambda ledger: ledger.drop_schedule("default", "nobody"),
    "a request, which has ended": lambda ledger: ledger.idempotency().begin(ENDED, b"o" * 8, 1_000),
    "the end of a request": lambda ledger: ledger.idempotency().end(ENDED, b"o" * 8, b"answer"),
    "a data key": lambda ledger: ledger.seal_keys().put(WrappedKey("1", b"x"), ""),
}
"""Verbs that change nothing where they were done before; nor do those that find nothing."""


def test_what_was_done_before_is_answered_once_the_replicas_have_it(frozen: Frozen) -> None:
    client, careless, careful, freeze = frozen
    careless.add([new(id, delay_ms=LATER_MS) for id in ("a", "cancelled")])
    careless.idempotency().begin(ENDED, b"o" * 8, LATER_MS)
    stored_task(careful)
    freeze()
    for again in REPEATED.values():
        again(careless)
    keys = {key: client.dump(key) for key in client.scan_iter()}
    for again in REPEATED.values():
        careful._registry._see(SHARD)  # else it is registered once more, and waits for that
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            again(careful)
    changed = {key for key in keys if client.dump(key) != keys[key]}
    assert changed <= {keys_of("duecourse", SHARD).meta.encode()}, "a fence is drawn"


def reminders_of(ledger: Ledger) -> Reminders:
    """Reminders in a store."""
    reminders = OneOffReminders(ledger, plainly, anywhere, seals_of(ledger), anyone)
    return Reminders(ledger, Calendar(), reminders)


def of_reader(ledger: Ledger) -> dict[str, Callable[[], object]]:
    """Requests that are answered by what was read."""
    verbs = reminders_of(ledger)
    return {
        "a reminder": lambda: verbs.add(MEETING),
        "a reminder that comes again": lambda: verbs.add(WEEKLY),
        "a query, which is asked already": lambda: asking(ledger, None)[0].ask(QUERY, lambda: 0),
    }


def test_what_is_read_to_be_done_before_is_answered_once_the_replicas_have_it(frozen: Frozen) -> None:
    _, careless, careful, freeze = frozen
    careless.add([new("a", delay_ms=LATER_MS)])
    stored_task(careful)
    freeze()
    for change in of_reader(careless).values():
        change()
    for again in of_reader(careful).values():
        for shard in (SHARD, Shard(QUEUE), Shard(queue_of(QUERY.id))):
            careful._registry._see(shard)
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            again()


def of_repeats(ledger: Ledger, notes: dict[str, bytes], since: int) -> dict[str, Callable[[], object]]:
    """Requests with a key on schedules, each of its own; `notes` are what their first tries saw, and keep."""

    def by(name: str) -> Schedules:
        def keep(note: bytes) -> bool:
            notes[name] = note
            return True

        keyed = KeyedTry(name, since, notes.get(name, b""), keep)
        return Schedules(ledger, Calendar(), lambda task: task).with_source("http", keyed)

    return {
        "change": lambda: by("change").change("default", "change", {"paused": True}),
        "run": lambda: by("run").run("default", "run"),
        "backfill": lambda: by("backfill").backfill("default", "backfill", (START, START + MINUTE), None),
    }


def test_a_repeat_that_finds_its_work_done_is_answered_once_the_replicas_have_it(frozen: Frozen) -> None:
    _, careless, careful, freeze = frozen
    notes: dict[str, bytes] = {}
    since = careless.now()
    first = of_repeats(careless, notes, 0)
    for id in first:
        assert careless.put_schedule(series(id), begun(since + LATER_MS)).put is Put.CREATED
    careful.schedule("default", "run")
    freeze()
    for do in first.values():
        do()
    careless.add([new(occurrence_id("backfill", START), group="backfill")])  # as a drain fills the span
    for again in of_repeats(careful, notes, since).values():
        careful._registry._see(SHARD)
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            again()
