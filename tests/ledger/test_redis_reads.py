"""Reads go by calls that let nothing be written, where the server has them."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
import redis

from duecourse.errors import StoreMisused
from duecourse.ledger import script_calls
from duecourse.ledger.connect import connect
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.many_tasks import TaskFilter
from duecourse.ledger.operation_types import Move
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import OnDuplicate, Shard
from tests.support.clock import HandClock
from tests.support.ledger import new
from tests.support.redis_server import FLOOR, RedisServer, need, newest

SHARD = Shard("default", 0)
LARGE = f'"{"x" * 5_000}"'


@pytest.fixture
def modern(server_of: object) -> RedisServer:
    """An empty server that has read-only calls."""
    return server_of(newest()).emptied()  # type: ignore[operator]


def read(ledger: Ledger) -> None:
    """Every verb that only reads."""
    assert ledger.stats(SHARD).scheduled == 1
    assert [one.scheduled for one in ledger.stats_of([SHARD])] == [1]
    assert len(ledger.outlook_of([SHARD])) == 1
    assert ledger.throttle(SHARD).reason is None
    assert ledger.page("default", TaskFilter(), None, 10).tasks
    assert ledger.get("default", "a")
    ledger.warmth().coming(SHARD, 60_000)


def calls(client: redis.Redis) -> set[str]:
    return {name.removeprefix("cmdstat_") for name in client.info("commandstats") if "eval" in name}


def test_reads_let_nothing_be_written_and_are_answered_while_a_failover_stops_writes(modern: RedisServer) -> None:
    with modern.client() as client:
        ledger = Ledger(connect(modern.url), "duecourse")
        ledger.add([new("a", payload=LARGE)])
        read(ledger)  # which has the server know the scripts
        client.config_resetstat()
        client.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        read(ledger)
        client.execute_command("CLIENT", "UNPAUSE")
        assert calls(client) == {"evalsha_ro"}


def test_a_server_without_such_calls_is_asked_by_the_others() -> None:
    with RedisServer(need(FLOOR)) as server, server.client() as client:
        ledger = Ledger(connect(server.url), "duecourse")
        ledger.add([new("a")])
        read(ledger)
        assert calls(client) == {"eval", "evalsha"}


@pytest.mark.parametrize("missing", [["-evalsha_ro", "-eval_ro"], ["-eval_ro"]], ids=["neither", "the second alone"])
def test_a_login_without_such_calls_reads_by_the_others(modern: RedisServer, missing: list[str]) -> None:
    with modern.client() as client:
        ledger = Ledger(connect(modern.url), "duecourse")
        ledger.add([new("a")])
        client.execute_command("ACL", "SETUSER", "default", *missing)
        client.script_flush()
        try:
            read(ledger)
        finally:
            client.execute_command("ACL", "SETUSER", "default", "+evalsha_ro", "+eval_ro")


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`cancel` is taken for a verb that reads."""
    with monkeypatch.context() as patched:
        script_calls.load.cache_clear()
        patched.setattr(script_calls, "READS", script_calls.READS | {"cancel"})
        yield
    script_calls.load.cache_clear()


@pytest.mark.usefixtures("wrong")
@pytest.mark.parametrize("kind", ["redis", "memory"])
def test_a_verb_that_is_wrongly_said_to_read_is_refused_and_writes_nothing(kind: str, modern: RedisServer) -> None:
    ledger = Ledger(connect(modern.url), "duecourse") if kind == "redis" else EmbeddedLedger(HandClock())
    ledger.add([new("a")])
    with pytest.raises(StoreMisused):
        ledger.cancel("default", ["a"])
    assert ledger.stats(SHARD).scheduled == 1


def test_a_large_task_is_read_whole_though_it_is_replaced_before_every_call(redis_client: redis.Redis) -> None:
    ledger, other, numbers = Ledger(redis_client), Ledger(redis_client), count()
    call = ledger._scripts.call

    def overtaken(*args: Any, **kwargs: Any) -> Any:
        payload = f'"{str(next(numbers)) * 5_000}"'
        other.add([new("a", payload=payload, group="g", delay_ms=60_000, on_duplicate=OnDuplicate.REPLACE)])
        return call(*args, **kwargs)

    ledger._scripts.call = overtaken  # type: ignore[method-assign]
    task = ledger.get("default", "a")
    assert task
    assert len(set(task.payload)) == 1
    assert [task.id for task in ledger.group("default", "g")] == ["a"]


def test_a_task_that_moves_behind_others_while_a_page_of_its_group_is_read_leaves_none_out(
    redis_client: redis.Redis,
) -> None:
    ledger, other = Ledger(redis_client), Ledger(redis_client)
    ledger.add([new(id, group="g", delay_ms=60_000 * n) for n, id in enumerate("abc", 1)])
    read = ledger._scripts.read

    def then_moved(*commands: Any) -> Any:
        answer = read(*commands)
        if commands[0][0] == "ZMSCORE":
            other.move("default", [Move("a", delay_ms=600_000)], group="g")
        return answer

    ledger._scripts.read = then_moved  # type: ignore[method-assign]
    page = ledger.page("default", TaskFilter(group="g"), None, 1)
    shown = [task.id for task in page.tasks]
    while page.next:
        page = ledger.page("default", TaskFilter(group="g"), page.next, 1)
        shown += [task.id for task in page.tasks]
    assert shown[:2] == ["b", "c"]
