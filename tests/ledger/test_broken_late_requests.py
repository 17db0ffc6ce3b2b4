"""A request that reaches Redis after its caller has given it up: it changes nothing, and no caller pays for that."""

import re
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import pytest
import redis

from duecourse.errors import StoreUnavailable
from duecourse.ledger import script_calls
from duecourse.ledger.connect import connect
from duecourse.ledger.keys import FIXED
from duecourse.ledger.many_tasks import Act, Bulk
from duecourse.ledger.operation_types import KeyedRequest, Move, UniqueCondition, Waited, WrappedKey
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.schedule import Entry
from duecourse.ledger.script_calls import EPOCH_MS, READS, ServerTime, load, monotonic, verbs
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, NewTask, OnDuplicate, Settlement, Shard, Status, Task
from tests.support.ledger import LEASE_MS, SHARD, add, claim, lease_of, new
from tests.support.project import ROOT
from tests.support.proxies import HoldingProxy, load_scripts
from tests.support.redis_cluster import ClusterServers
from tests.support.redis_monitor import sent_by
from tests.support.redis_server import RedisServer, need, newest
from tests.support.schedules import begun, kept, series, step
from tests.support.wait import until

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
CHANGING = sorted(set(verbs()) - READS)
PAST = 1_000_000_000_000
"""An instant of 2001, until which no request is valid any more."""
KEY = KeyedRequest("-", "key", b"f" * 32)
OWNER = b"8 bytes."


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(need(newest())) as running:
        yield running


@pytest.fixture
def good(server: RedisServer) -> Iterator[Ledger]:
    """The ledger, by the short way."""
    with connect(server.emptied().url) as client:
        load_scripts(client)
        yield Ledger(client)


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[HoldingProxy]:
    with HoldingProxy(server) as holding:
        yield holding


@pytest.fixture
def held_up(proxy: HoldingProxy) -> Iterator[Ledger]:
    """The ledger of a caller whose requests are held up."""
    with connect(proxy.url) as client:
        yield Ledger(client)


def everything(client: redis.Redis) -> dict[bytes, object]:
    """Every key, with its value as the server would save it."""
    return {key: client.dump(key) for key in client.scan_iter()}


def later(id: str, **fields: object) -> NewTask:
    """A task of a queue of this name, due in an hour."""
    return new(id, queue=id, **{"delay_ms": HOUR_MS} | fields)


def leased(ledger: Ledger, id: str) -> Task:
    """A task of a queue of this name that runs."""
    ledger.add([new(id, queue=id)])
    [task] = ledger.claim(Shard(id), 1, lease_ms=HOUR_MS).tasks
    return task


def end_of(task: Task, how: Ending) -> Settlement:
    return Settlement(task.id, task.tenant, task.token, how)


class Case(NamedTuple):
    """A verb whose request is held up, and what is done before and after it by the short way."""

    verb: str
    before: Callable[[Ledger], object]
    sent: Callable[[Ledger, object], object]
    newer: Callable[[Ledger], object] = lambda _ledger: None


def _adds(id: str, **fields: object) -> Callable[[Ledger], object]:
    return lambda ledger: ledger.add([later(id, **fields)])


def _paused(id: str, value: bool | None) -> Callable[[Ledger], object]:
    return lambda ledger: ledger.configure(id, {"paused": value})


def _puts(id: str, hours: int) -> Callable[[Ledger], object]:
    return lambda ledger: ledger.put_schedule(series(id), begun(ledger.now() + hours * HOUR_MS))


CASES: dict[str, Case] = {
    "add": Case(
        "add", _adds("other"), lambda ledger, _: ledger.add([new("add", queue="other", payload="1")]),
        lambda ledger: (ledger.add([new("add", queue="other", delay_ms=HOUR_MS)]), ledger.cancel("other", ["add"])),
    ),
    "an add later than another": Case(
        "add", _adds("usual"), lambda ledger, _: ledger.add([new("later", queue="usual", delay_ms=2 * HOUR_MS)])
    ),
    "a great add": Case(
        "add", _adds("great"), lambda ledger, _: ledger.add([new(f"{n}", queue="great") for n in range(500)])
    ),
    "an add of a reminder, alone in its group": Case(
        "add", _adds("alone"),
        lambda ledger, _: ledger.add([later("alone", group="g")], unique=UniqueCondition("g", 0)),
    ),
    "replace": Case(
        "add", _adds("replace"),
        lambda ledger, _: ledger.add([later("replace", payload="1", on_duplicate=OnDuplicate.REPLACE)]),
        _adds("replace", payload="2", on_duplicate=OnDuplicate.REPLACE),
    ),
    "cancel": Case(
        "cancel", _adds("cancel"), lambda ledger, _: ledger.cancel("cancel", ["cancel"]),
        lambda ledger: (ledger.cancel("cancel", ["cancel"]), ledger.add([later("cancel", payload="2")])),
    ),
    "move": Case(
        "move", _adds("move"), lambda ledger, _: ledger.move("move", [Move("move", delay_ms=HOUR_MS)]),
        lambda ledger: ledger.move("move", [Move("move", delay_ms=2 * HOUR_MS)]),
    ),
    "replay": Case(
        "replay", lambda ledger: ledger.settle(Shard("replay"), [end_of(leased(ledger, "replay"), Ending.DROP)]),
        lambda ledger, _: ledger.replay("replay", ["replay"]),
    ),
    "purge": Case(
        "bulk", _adds("bulk"), lambda ledger, _: ledger.bulk("bulk", Bulk(Act.CANCEL, (Status.SCHEDULED,))),
        lambda ledger: (ledger.cancel("bulk", ["bulk"]), ledger.add([later("bulk")])),
    ),
    "pause": Case(
        "configure", _adds("pause"), lambda ledger, _: _paused("pause", True)(ledger),
        lambda ledger: (_paused("pause", True)(ledger), _paused("pause", None)(ledger)),
    ),
    "resume": Case(
        "configure", _paused("resume", True), lambda ledger, _: _paused("resume", None)(ledger),
        lambda ledger: (_paused("resume", None)(ledger), _paused("resume", True)(ledger)),
    ),
    "a setting of a new queue": Case(
        "register", lambda _: None, lambda ledger, _: ledger.configure("register", {"max_running": 1})
    ),
    "claim": Case("claim", lambda ledger: ledger.add([new("claim", queue="claim")]),
                  lambda ledger, _: ledger.claim(Shard("claim"), 1, lease_ms=HOUR_MS)),
    "take": Case("take", _adds("take"), lambda ledger, _: ledger.take("take", "take", lease_ms=HOUR_MS)),
    "settle": Case(
        "settle", lambda ledger: leased(ledger, "settle"),
        lambda ledger, task: ledger.settle(Shard("settle"), [end_of(task, Ending.AGAIN)]),  # type: ignore[arg-type]
        lambda ledger: ledger.move("settle", [Move("settle", delay_ms=HOUR_MS, force=True)]),
    ),
    "begin": Case(
        "begin", lambda ledger: leased(ledger, "begin"),
        lambda ledger, task: ledger.begin(Shard("begin"), [lease_of(task)], LEASE_MS, [OWNER]),  # type: ignore[arg-type]
    ),
    "extend": Case(
        "extend", lambda ledger: leased(ledger, "extend"),
        lambda ledger, task: ledger.extend(Shard("extend"), [lease_of(task)], 9 * HOUR_MS),  # type: ignore[arg-type]
    ),
    "save": Case(
        "save", lambda ledger: leased(ledger, "save"),
        lambda ledger, task: ledger.save(Shard("save"), lease_of(task), "1"),  # type: ignore[arg-type]
    ),
    "a new schedule": Case("schedule", _puts("first", 1), lambda ledger, _: _puts("new", 2)(ledger)),
    "a changed schedule": Case(
        "schedule", _puts("old", 1),
        lambda ledger, _: ledger.put_schedule(series("old", payload="2"), begun(), seen=kept(ledger, "old")),
    ),
    "a deleted schedule": Case(
        "unschedule", _puts("gone", 1), lambda ledger, _: ledger.drop_schedule(SHARD.queue, "gone"),
        lambda ledger: (ledger.drop_schedule(SHARD.queue, "gone"), _puts("gone", 1)(ledger)),
    ),
    "fire": Case(
        "fire", lambda ledger: (_puts("fire", 1)(ledger), kept(ledger, "fire"))[1],
        lambda ledger, one: ledger.fire(SHARD, [step(one)]),  # type: ignore[arg-type]
    ),
    "the begin of a request": Case(
        "request_begin", lambda _: None, lambda ledger, _: ledger.idempotency().begin(KEY, OWNER, 1),
        lambda ledger: ledger.idempotency().begin(KEY, b"another.", HOUR_MS),
    ),
    "the end of a request": Case(
        "request_end", lambda _: None, lambda ledger, _: ledger.idempotency().release(KEY._replace(key="2"), OWNER),
        lambda ledger: ledger.idempotency().begin(KEY._replace(key="2"), OWNER, HOUR_MS),
    ),
    "the upkeep of requests": Case("request_forget", lambda _: None, lambda ledger, _: ledger.idempotency().prune()),
    "what a deployment has": Case("deploy", lambda _: None, lambda ledger, _: ledger.deployments().write({"a"}, {"a"})),
    "a data key": Case("rekey", lambda _: None, lambda ledger, _: ledger.seal_keys().put(WrappedKey("1", b"x"), "")),
    "a query": Case("admit", lambda _: None, lambda ledger, _: ledger.in_flight().admit("-", "a", 1, 9_000)),
    "the end of a query": Case(
        "dismiss", lambda _: None, lambda ledger, _: ledger.in_flight().dismiss("-", "1:b"),
        lambda ledger: ledger.in_flight().admit("-", "b", 9, HOUR_MS),
    ),
    "a file of schedules": Case(
        "schedule_file", lambda _: None, lambda ledger, _: ledger.schedule_files().begin(1, "x", [Entry("q", "-", "a")])
    ),
    "functions that are warmed": Case(
        "idle_functions", lambda _: None, lambda ledger, _: ledger.warmth().idle(["f"], 1)
    ),
    "a sweep": Case("sweep", _adds("sweep"), lambda ledger, _: ledger.sweep_all([Shard("sweep")], retention_ms=0)),
    "a wait": Case(
        "await", _adds("wait"), lambda ledger, _: ledger.await_ends(Shard("wait"), [Waited("wait", "-", "a")], 1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("verb", CHANGING)
def test_each_script_that_changes_anything_ends_where_it_is_late(redis_client: redis.Redis, verb: str) -> None:
    keys = [f"{{k}}/0}}:{name}" for name in (*FIXED, "due:-")]
    with pytest.raises(redis.ResponseError, match=r"^LATE "):
        redis_client.eval(load(verb).text, len(keys), *keys, PAST, *"1" * 20)
    assert redis_client.dbsize() == 0


def test_what_is_held_up_changes_nothing_once_its_caller_has_given_up(
    server: RedisServer, good: Ledger, held_up: Ledger, proxy: HoldingProxy
) -> None:
    sent: dict[str, int] = {}
    for name, case in CASES.items():
        before = case.before(good)
        count, proxy.verb = len(proxy.held), case.verb
        with suppress(StoreUnavailable):  # of many, errors are among the answers
            case.sent(held_up, before)
        proxy.verb = ""
        sent[name] = len(proxy.held) - count
        case.newer(good)
    assert 0 not in sent.values(), sent
    assert all(request.valid_until for request in proxy.held)
    until(lambda: good.now() > max(request.valid_until for request in proxy.held))
    with server.client() as client:
        standing = everything(client)
        answers = [(request.verb, proxy.deliver(request)[:6]) for request in proxy.held]
        assert {answer for answer in answers if answer[1] != b"-LATE "} == set()
        assert everything(client) == standing


def test_a_claim_that_a_closed_connection_left_at_a_server_that_stood_still_leases_nothing(
    server: RedisServer, good: Ledger
) -> None:
    add(good)
    good.now()  # a connection is open
    server.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable):
            claim(good)
        given_up = time.monotonic()
        until(lambda: time.monotonic() > given_up + 1)  # longer than the margin of a clock
    finally:
        server.process.send_signal(signal.SIGCONT)
    with server.client() as client:
        until(lambda: "errorstat_LATE" in client.info("errorstats"))
    assert good.stats(SHARD).leased == 0
    assert [task.attempt for task in claim(good)] == [1]


def test_a_claim_whose_caller_still_waits_is_done_though_the_server_stood_still(
    server: RedisServer, good: Ledger
) -> None:
    add(good)
    server.process.send_signal(signal.SIGSTOP)
    frozen_at = time.monotonic()
    with ThreadPoolExecutor(1) as threads:
        try:
            waiting = threads.submit(claim, good)
            until(lambda: time.monotonic() > frozen_at + 1)
        finally:
            server.process.send_signal(signal.SIGCONT)
        [task] = waiting.result(30)
    assert (task.id, task.attempt, good.stats(SHARD).leased) == ("a", 1, 1)


def test_the_time_is_asked_for_once_and_a_claim_and_its_settle_are_two_commands(
    server: RedisServer, good: Ledger
) -> None:
    add(good)
    assert sent_by(server, lambda: settled_one(good)) == ["EVALSHA", "EVALSHA"]
    with connect(server.url) as client:
        other = Ledger(client)
        add(good)
        assert [name for name in sent_by(server, lambda: settled_one(other)) if name in {"TIME", "EVALSHA"}] == [
            "TIME",
            "EVALSHA",
            "EVALSHA",
        ]


def settled_one(ledger: Ledger) -> None:
    """Claim one task and settle it."""
    [task] = claim(ledger)
    ledger.settle(SHARD, [end_of(task, Ending.DONE)])


def known(ledger: Ledger, off_ms: float) -> ServerTime:
    """Have a store take the server's clock for one that is this far from it."""
    ledger._scripts._times[""] = time_of_it = ServerTime(monotonic(), ledger.now() + off_ms)
    return time_of_it


def test_a_server_whose_clock_was_set_forward_is_asked_for_its_time_and_sent_the_request_again(
    server: RedisServer, good: Ledger
) -> None:
    add(good)
    known(good, -HOUR_MS)
    assert sent_by(server, lambda: settled_one(good)) == ["EVALSHA", "TIME", "EVALSHA", "EVALSHA"]
    known(good, -HOUR_MS)
    assert [swept for swept in good.sweep_all([SHARD], retention_ms=HOUR_MS) if isinstance(swept, Exception)] == []
    known(good, -HOUR_MS)
    assert len(good.add([new(f"{n}") for n in range(500)])) == 500
    assert good.stats(SHARD).scheduled == 500


def test_a_server_whose_clock_was_set_back_is_followed_by_its_next_answer(good: Ledger) -> None:
    time_of_it = known(good, HOUR_MS)
    add(good)
    assert abs(time_of_it.deadline(0) - good.now()) < HOUR_MS / 2


def test_a_request_that_is_late_twice_is_given_up_and_has_changed_nothing(
    good: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(good, "first")
    monkeypatch.setattr(script_calls, "ANSWER_MS", -HOUR_MS)
    for change in (lambda: add(good), lambda: claim(good), lambda: good.cancel(SHARD.queue, ["first"])):
        with pytest.raises(StoreUnavailable, match="LATE"):
            change()
    assert good.get(SHARD.queue, "a") is None
    assert good.stats(SHARD)[:2] == (1, 0)


def test_a_process_that_was_frozen_asks_for_the_time_anew(server: RedisServer, good: Ledger) -> None:
    add(good)
    settled_one(good)
    good._scripts._used_at -= HOUR_MS / 1000  # and the monotonic clock stood still
    good._scripts._steady -= HOUR_MS / 1000
    assert [name for name in sent_by(server, lambda: claim(good)) if name in {"TIME", "EVALSHA"}] == ["TIME", "EVALSHA"]


def test_the_time_is_asked_for_anew_after_a_freeze_that_leaves_connections_as_they_are(good: Ledger) -> None:
    add(good)
    freeze_ms = 3_000
    known(good, -freeze_ms)  # as far behind as the monotonic clock stood still
    good._scripts._steady -= freeze_ms / 1000
    assert abs(good.now_by_answers(SHARD.queue, "a") - good.now()) < freeze_ms / 2


def test_the_servers_time_is_never_taken_for_later_by_what_a_slow_answer_took() -> None:
    """A time of a new schedule that comes within that would be left out."""
    answer = 10 * HOUR_MS + EPOCH_MS
    slow = ServerTime(monotonic() - HOUR_MS, answer)
    assert slow.now() < answer + HOUR_MS / 2
    slow.observe(monotonic() - HOUR_MS, [answer + HOUR_MS])
    assert answer + HOUR_MS / 2 < slow.now() < answer + HOUR_MS * 1.5


HARMLESS = {
    "HSET": "the mark of a clock that travels; when a part was swept",
    "SADD": "the mark of a shard that is being forgotten, each one's own: a script takes the shard, where it is marked",
    "SREM": "the same mark",
    "ZREM": "a queue that a tenant has not used for long: one that it uses is entered again within a minute",
    "HDEL": "the same queue",
    "HSETNX": "a data key of an export: never in place of another",
}
"""Plain commands that write, and why it does no harm that one is done late."""
READING = {"SMEMBERS", "HMGET", "HGET", "HGETALL", "HLEN", "HVALS", "ZRANGE", "ZRANGEBYSCORE", "ZRANGEBYLEX",
           "ZSCORE", "ZCOUNT", "HSCAN", "ZSCAN", "SISMEMBER", "TIME", "GET"}  # fmt: skip


def test_no_plain_command_but_harmless_ones_changes_anything() -> None:
    places = [ROOT / "layers" / "core" / "duecourse" / "ledger", ROOT / "local" / "duecourse_local"]
    texts = [path.read_text() for place in places for path in place.rglob("*.py")]
    found = {name for text in texts for name in re.findall(r'[sS]cripts(?:\([^)]*\))?\.command\(\s*"([A-Z]+)"', text)}
    assert found - READING == set(HARMLESS)


def test_each_primary_of_a_cluster_has_a_time_of_its_own(cluster_of: Callable[[str], ClusterServers]) -> None:
    cluster, sharding = cluster_of(newest()).emptied(), Sharding({"default": 8})
    with connect(cluster.url) as client:
        ledger = Ledger(client, sharding=sharding)
        ledger.add([new(f"{n}") for n in range(64)])
        times = ledger._scripts._times
        assert {int(name.rpartition(":")[2]) for name in times} == set(cluster.primaries())
        name = next(iter(times))
        times[name] = ServerTime(monotonic(), ledger.now() - HOUR_MS)  # its clock alone was set forward
        found = [task for shard in sharding.every("default") for task in claim_of(ledger, shard)]
        assert len(found) == 64
        assert all(abs(one.deadline(0) - ledger.now()) < HOUR_MS / 2 for one in ledger._scripts._times.values())


def claim_of(ledger: Ledger, shard: Shard) -> list[Task]:
    return ledger.claim(shard, 100, lease_ms=LEASE_MS).tasks
