"""Adds of many threads on one Redis store: fewer scripts than tasks, each thread with its own answer."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from duecourse.errors import InvalidInput, StoreMisused, StoreUnavailable
from duecourse.ledger.connect import connect
from duecourse.ledger.operation_types import MAX_ADD, AddReply, Reply
from duecourse.ledger.operations.adds import PIECE_AHEAD
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import NewTask, OnDuplicate
from tests.support.ledger import LATER_MS, SHARD, new
from tests.support.proxies import LossyProxy, load_scripts
from tests.support.redis_server import RedisServer

THREADS, EACH = 20, 15


@pytest.fixture
def ledger(redis_client: redis.Redis) -> Ledger:
    made = Ledger(redis_client, sharding=Sharding({"wide": 4}))
    made.add([new("first")])
    return made


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(THREADS) as made:
        yield made


def scripts(client: redis.Redis) -> int:
    return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])


def test_threads_share_scripts_and_each_gets_what_became_of_its_own(
    ledger: Ledger, redis_client: redis.Redis, threads: ThreadPoolExecutor
) -> None:
    together = threading.Barrier(THREADS)
    redis_client.config_resetstat()

    def work(thread: int) -> list[AddReply]:
        together.wait(30)
        return [
            ledger.add([new(f"{thread}.{n}", payload=f'"{thread}.{n}"', tenant=f"t{thread % 3}")], echo=True)[0]
            for n in range(EACH)
        ]

    answers = list(threads.map(work, range(THREADS)))
    for thread, added in enumerate(answers):
        assert [(one.id, one.reply) for one in added] == [(f"{thread}.{n}", Reply.CREATED) for n in range(EACH)]
        told = [(one.task.payload, one.task.tenant) for one in added if one.task]
        assert told == [(f"{thread}.{n}", f"t{thread % 3}") for n in range(EACH)]
    assert scripts(redis_client) < THREADS * EACH


def test_of_one_id_one_thread_adds_the_task_and_the_others_hear_so(ledger: Ledger, threads: ThreadPoolExecutor) -> None:
    together = threading.Barrier(THREADS)

    def work(thread: int) -> Reply:
        together.wait(30)
        mode = OnDuplicate.REJECT if thread % 2 else OnDuplicate.KEEP
        return ledger.add([new("same", on_duplicate=mode)])[0].reply

    replies = list(threads.map(work, range(THREADS)))
    assert replies.count(Reply.CREATED) == 1
    assert set(replies) <= {Reply.CREATED, Reply.KEPT, Reply.SCHEDULED}
    assert all(reply is not Reply.SCHEDULED for reply in replies[::2])
    assert all(reply is not Reply.KEPT for reply in replies[1::2])


def test_shards_stay_apart(ledger: Ledger, threads: ThreadPoolExecutor) -> None:
    ids = [f"w-{n}" for n in range(THREADS * EACH)]
    replies = list(threads.map(lambda one: ledger.add([NewTask(one, "work", queue="wide", delay_ms=LATER_MS)])[0], ids))
    assert [(one.id, one.reply) for one in replies] == [(id, Reply.CREATED) for id in ids]
    assert all(ledger.get("wide", id) for id in ids)
    assert len({ledger.shard_of("wide", id) for id in ids}) == 4


def test_what_does_not_fit_into_a_record_is_its_callers_error_alone(
    ledger: Ledger, threads: ThreadPoolExecutor
) -> None:
    together = threading.Barrier(THREADS)

    def work(thread: int) -> str:
        together.wait(30)
        try:
            return ledger.add([new(f"f-{thread}", kind="k" * (300 if thread % 5 == 0 else 3))])[0].reply
        except InvalidInput:
            return "invalid"

    replies = list(threads.map(work, range(THREADS)))
    assert replies == ["invalid" if thread % 5 == 0 else "created" for thread in range(THREADS)]


def test_a_record_that_cannot_be_read_fails_the_add_of_its_own_id_alone(
    ledger: Ledger, redis_client: redis.Redis, threads: ThreadPoolExecutor
) -> None:
    redis_client.hset("duecourse:{default/0}:tasks", "-/bad", b"broken")
    together = threading.Barrier(THREADS)

    def work(thread: int) -> str:
        together.wait(30)
        try:
            return ledger.add([new("bad" if thread == 7 else f"r-{thread}")])[0].reply
        except StoreMisused:
            return "misused"

    replies = list(threads.map(work, range(THREADS)))
    assert replies == ["misused" if thread == 7 else "created" for thread in range(THREADS)]


def test_an_add_that_must_reach_replicas_is_told_of_to_all_where_it_does_not(redis_server: RedisServer) -> None:
    with connect(redis_server.url) as client, ThreadPoolExecutor(4) as threads:
        client.flushall()
        ledger = Ledger(client, wait=1)
        began = time.monotonic()
        futures = [threads.submit(ledger.add, [new(f"t-{n}")]) for n in range(4)]
        errors = [future.exception(30) for future in futures]
        assert {type(error) for error in errors} == {StoreUnavailable}
        assert len({id(error) for error in errors}) == 4
        assert time.monotonic() - began < 4  # one alone and one shared wait, not four


def many(count: int = MAX_ADD, **fields: object) -> list[NewTask]:
    return [new(f"m-{n}", payload=str(n), **fields) for n in range(count)]


def test_a_great_add_goes_ahead_of_its_answers_and_each_task_gets_its_own(
    ledger: Ledger, redis_client: redis.Redis
) -> None:
    ledger.add([new("m-3")])
    redis_client.config_resetstat()
    added = ledger.add(many(), echo=True)
    assert [one.id for one in added] == [f"m-{n}" for n in range(MAX_ADD)]
    assert [one.reply for one in added] == [Reply.KEPT if n == 3 else Reply.CREATED for n in range(MAX_ADD)]
    assert all(one.task and one.task.payload == n for n, one in enumerate(added) if n != 3)
    assert scripts(redis_client) == MAX_ADD / PIECE_AHEAD


def test_the_first_great_add_of_all_finds_its_script_and_registers_the_shard(redis_client: redis.Redis) -> None:
    redis_client.script_flush()
    ledger = Ledger(redis_client)
    assert {one.reply for one in ledger.add(many())} == {Reply.CREATED}
    assert ledger.shards() == [SHARD]


@pytest.mark.parametrize("place", range(3))
def test_a_great_add_whose_replies_are_lost_is_sent_again_as_it_was(redis_server: RedisServer, place: int) -> None:
    """Whichever of them is lost, that of a piece that was not the first too."""
    with LossyProxy(redis_server.socket) as proxy, connect(proxy.url) as client:
        client.flushall()
        load_scripts(client)
        ledger = Ledger(client)
        ledger.add([new("first")])
        tasks = many()
        proxy.lose_next_reply(f"m-{PIECE_AHEAD * place}".encode())
        assert {one.reply for one in ledger.add(tasks)} == {Reply.CREATED}
        assert proxy.lost == 1
        assert {one.reply for one in ledger.add(tasks)} == {Reply.KEPT}


def test_an_id_that_stands_twice_in_a_great_add_is_found_by_its_second(ledger: Ledger) -> None:
    tasks = [*many(MAX_ADD - 1, on_duplicate=OnDuplicate.REJECT), new("m-0", on_duplicate=OnDuplicate.REJECT)]
    replies = [one.reply for one in ledger.add(tasks)]
    assert replies == [Reply.CREATED] * (MAX_ADD - 1) + [Reply.SCHEDULED]


def test_a_great_add_in_which_one_task_is_refused_by_the_server_is_told_of_as_ever(
    ledger: Ledger, redis_client: redis.Redis
) -> None:
    redis_client.hset("duecourse:{default/0}:tasks", f"-/m-{PIECE_AHEAD}", b"broken")
    with pytest.raises(StoreMisused):
        ledger.add(many())
    redis_client.hdel("duecourse:{default/0}:tasks", f"-/m-{PIECE_AHEAD}")
    assert {one.reply for one in ledger.add(many())} <= {Reply.CREATED, Reply.KEPT}
    assert len(ledger.add([new("last")])) == 1  # no answer was left behind on a connection
