"""With DUECOURSE_WAIT, a request that finds done what it asks for is answered once the replicas have that."""

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from duecourse.adapters.calendar.calendar import ZonedCalendar
from duecourse.adapters.redis.connect import Client, connect
from duecourse.adapters.redis.keys import keys_of
from duecourse.adapters.redis.store import RedisStore
from duecourse.domain.bulk import Act, Bulk
from duecourse.domain.query import queue_of
from duecourse.domain.reminder import QUEUE, Channel, Recipient, Reminder
from duecourse.domain.schedule import RRule, Rule
from duecourse.domain.series import Series
from duecourse.domain.task import Shard, Status
from duecourse.domain.times import DAY_MS
from duecourse.engine.meetings import Meetings
from duecourse.engine.reminders import Reminders
from duecourse.errors import StoreUnavailable
from duecourse.ports.idempotency import KeyedRequest
from duecourse.ports.seals import WrappedKey
from duecourse.ports.tasks import Alone
from tests.support.egress import anyone, anywhere
from tests.support.ledger import LATER_MS, SHARD, new, standing
from tests.support.lossy_proxy import load_scripts
from tests.support.redis_server import SERVERS, RedisServer, need
from tests.support.schedules import begun, series
from tests.support.seals import seals_of
from tests.support.wait import until
from tests.unit.test_engine_queries import QUERY, asking
from tests.unit.test_engine_reminders import plainly

STARTS_AT = 4_102_444_800_000
"""A day in 2100."""
ADA = Recipient("Ada", Channel.EMAIL, "ada@example.com", "")
MEETING = Reminder("meeting", "Meeting", STARTS_AT, (60_000,), (ADA,), "Room 4", "", {})
WEEKLY = Series(
    "weekly",
    Rule(RRule("FREQ=WEEKLY"), STARTS_AT),
    "Weekly",
    (DAY_MS,),
    (ADA,),
    "Room 4",
    "",
    {},
    fields=("recipients",),
)
ENDED = KeyedRequest("-", "key", b"f" * 32)


class Frozen(NamedTuple):
    """A primary whose replica is there, and takes nothing; a store that does not care, and one that does."""

    client: Client
    careless: RedisStore
    careful: RedisStore
    freeze: Callable[[], None]


@pytest.fixture(params=SERVERS)
def frozen(request: pytest.FixtureRequest) -> Iterator[Frozen]:
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

        yield Frozen(first, RedisStore(first), RedisStore(second, wait=1), freeze)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


REPEATED: dict[str, Callable[[RedisStore], object]] = {
    "a reminder, which is there": lambda store: store.add(
        [new("r", group="g", delay_ms=LATER_MS)], alone=Alone("g", 0)
    ),
    "a task, which is there": lambda store: store.add([new("a", delay_ms=LATER_MS)]),
    "a repeat of an add": lambda store: store.add([new("a", delay_ms=LATER_MS)], echo=True, since=1),
    "a cancel": lambda store: store.cancel("default", ["cancelled"]),
    "a cancel of nothing": lambda store: store.cancel("default", ["nobody"]),
    "a purge of nothing": lambda store: store.bulk("default", Bulk(Act.DELETE, (Status.DEAD,))),
    "a replay": lambda store: store.replay("default", ["a"]),
    "a setting that is none": lambda store: store.configure("default", {"paused": None}),
    "a schedule, which is there": lambda store: store.put_schedule(series("s"), begun(store.now() + LATER_MS)),
    "the end of a schedule": lambda store: store.drop_schedule("default", "nobody"),
    "a request, which has ended": lambda store: store.idempotency().begin(ENDED, b"o" * 8, 1_000),
    "the end of a request": lambda store: store.idempotency().end(ENDED, b"o" * 8, b"answer"),
    "a data key": lambda store: store.seal_keys().put(WrappedKey("1", b"x"), ""),
}
"""Verbs that change nothing where they were done before; nor do those that find nothing."""


def test_what_was_done_before_is_answered_once_the_replicas_have_it(frozen: Frozen) -> None:
    client, careless, careful, freeze = frozen
    careless.add([new(id, delay_ms=LATER_MS) for id in ("a", "cancelled")])
    careless.idempotency().begin(ENDED, b"o" * 8, LATER_MS)
    standing(careful)
    freeze()
    for again in REPEATED.values():
        again(careless)
    keys = {key: client.dump(key) for key in client.scan_iter()}
    for again in REPEATED.values():
        careful._record._see(SHARD)  # else it is put on record once more, and waits for that
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            again(careful)
    changed = {key for key in keys if client.dump(key) != keys[key]}
    assert changed <= {keys_of("duecourse", SHARD).meta.encode()}, "a fence is drawn"


def meetings(store: RedisStore) -> Meetings:
    """Reminders in a store."""
    reminders = Reminders(store, plainly, anywhere, seals_of(store), anyone)
    return Meetings(store, store, ZonedCalendar(), reminders)


def of_reader(store: RedisStore) -> dict[str, Callable[[], object]]:
    """Requests that are answered by what was read."""
    verbs = meetings(store)
    return {
        "a reminder": lambda: verbs.add(MEETING),
        "a reminder that comes again": lambda: verbs.add(WEEKLY),
        "a query, which is asked already": lambda: asking(store, None)[0].ask(QUERY, lambda: 0),
    }


def test_what_is_read_to_be_done_before_is_answered_once_the_replicas_have_it(frozen: Frozen) -> None:
    _, careless, careful, freeze = frozen
    careless.add([new("a", delay_ms=LATER_MS)])
    standing(careful)
    freeze()
    for change in of_reader(careless).values():
        change()
    for again in of_reader(careful).values():
        for shard in (SHARD, Shard(QUEUE), Shard(queue_of(QUERY.id))):
            careful._record._see(shard)
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            again()
