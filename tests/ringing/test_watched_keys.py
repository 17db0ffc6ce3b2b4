"""Watched keys on real servers: what any program sets with a TTL becomes one task each time it expires."""

import json
import logging
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from duecourse.errors import InvocationRejected
from duecourse.ledger.task import Shard, Task
from duecourse.ledger.watched_keys import Pattern, Watch
from tests.support.bridges import bridge_process, bridging
from tests.support.http_server import answering
from tests.support.lingering import Open, lingering
from tests.support.matrix import MATRIX
from tests.support.redis_cluster import ClusterServers
from tests.support.redis_server import RedisServer
from tests.support.triggers import Triggers, triggers
from tests.support.wait import until

pytestmark = pytest.mark.slow

WATCHED = ["send_message-{user}-{type}", "send_{what}"]
WATCHES = [Watch(Pattern(WATCHED[0]), "message", {"n": 1}), Watch(Pattern(WATCHED[1]), "other")]
SETTING = json.dumps([{"pattern": pattern, "kind": "message"} for pattern in WATCHED])
WINDOW_S = 1.0


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    with server.client() as client:
        yield client


@pytest.fixture
def house(server: RedisServer) -> Iterator[Triggers]:
    with triggers(server, WATCHES) as house:
        yield house


def keys_of(house: Triggers) -> list[Any]:
    """The names' parts of what ran."""
    return [task.payload["key"] for task in house.ran]


def expire(client: Any, key: str | bytes, house: Triggers, *, times: int = 1, in_ms: int = 60) -> None:
    """Set a key and wait until its expiry has been heard so many more times."""
    before = len(house.heard)
    client.set(key, "v", px=in_ms)
    until(lambda: len(house.heard) >= before + times)


def idle(house: Triggers) -> bool:
    """Whether all tasks have run to their ends."""
    stats = house.ledger.stats(Shard())
    return stats.scheduled == stats.leased == 0 and stats.done == len(house.ran)


def test_a_plain_key_that_expires_runs_its_kind_with_the_parts_of_its_name(
    server: RedisServer, client: redis.Redis, house: Triggers
) -> None:
    with bridging(server, house, watched=WATCHED):
        at = house.ledger.now() + 300
        client.set("send_message-42-sms", "v", px=300)
        until(lambda: house.ran and idle(house))
        assert [key for key in client.scan_iter() if client.pttl(key) != -1] == []
    [task] = house.ran
    assert (task.kind, task.payload) == ("message", {"n": 1, "key": {"user": "42", "type": "sms"}})
    assert at - 5 <= task.due_at < at + 2_000
    assert at - 5 <= house.heard[0].heard_at <= task.due_at + 5


def test_the_first_of_overlapping_patterns_wins(server: RedisServer, client: redis.Redis, house: Triggers) -> None:
    with bridging(server, house, watched=WATCHED):
        for key in ("send_message-1-a", "send_later", "send_message-1"):
            expire(client, key, house)
        until(lambda: len(house.ran) == 3)
    assert sorted((task.kind, json.dumps(task.payload["key"])) for task in house.ran) == [
        ("message", '{"user": "1", "type": "a"}'),
        ("other", '{"what": "later"}'),
        ("other", '{"what": "message-1"}'),
    ]


def test_keys_that_nobody_watches_and_what_does_not_expire_invoke_nothing(
    server: RedisServer, client: redis.Redis, house: Triggers
) -> None:
    with bridging(server, house, watched=WATCHED) as bridge, server.client(db=1) as elsewhere:
        for n in range(500):
            client.set(f"session:{n}", "v", px=20)
        elsewhere.set("send_message-elsewhere-x", "v", px=20)
        client.set("send_message-deleted-x", "v", px=5_000)
        client.delete("send_message-deleted-x")
        client.set("send_message-kept-x", "v", px=50)
        client.persist("send_message-kept-x")
        until(lambda: client.dbsize() == 1)  # the one that is kept
        until(lambda: elsewhere.dbsize() == 0)
        expire(client, "send_message-last-x", house)
        until(lambda: house.ran)
        assert bridge.stats().keys == 1
    assert keys_of(house) == [{"user": "last", "type": "x"}]


def test_a_name_that_is_no_utf_8_is_watched_too(server: RedisServer, client: redis.Redis, house: Triggers) -> None:
    with bridging(server, house, watched=WATCHED):
        for key in (b"send_message-\xff\x00-\xc3\xa9", rb"send_message-\xff-x", b"send_message-\xff-x"):
            expire(client, key, house)
        until(lambda: len(house.ran) == 3)
    assert {one.key for one in house.heard} == {
        b"send_message-\xff\x00-\xc3\xa9",
        rb"send_message-\xff-x",
        b"send_message-\xff-x",
    }
    assert {"user": "\\xff\x00", "type": "é"} in keys_of(house)


def test_however_many_bridges_hear_it_it_counts_once(server: RedisServer, client: redis.Redis, house: Triggers) -> None:
    with (
        triggers(server, WATCHES) as other,
        bridging(server, house, watched=WATCHED),
        bridging(server, other, watched=WATCHED),
    ):
        for n in range(50):
            client.set(f"send_message-{n}-x", "v", px=50 + n)
        until(lambda: len(house.heard) == len(other.heard) == 50)
        until(lambda: len(house.ran) + len(other.ran) == 50 and house.ledger.stats(Shard()).done == 50)
    ran = keys_of(house) + keys_of(other)
    assert sorted(int(key["user"]) for key in ran) == list(range(50))


@contextmanager
def beside_another(server: RedisServer, house: Triggers) -> Iterator[subprocess.Popen[str]]:
    """A bridge in a process of its own, and one that is not touched."""
    with (
        answering(house.answer) as service,
        bridge_process(server, service.url, WATCH=SETTING) as process,
        bridging(server, house, watched=WATCHED),
    ):
        yield process


@MATRIX
def test_what_a_frozen_bridge_hears_when_it_thaws_is_what_the_other_heard(
    server: RedisServer, client: redis.Redis, house: Triggers
) -> None:
    with beside_another(server, house) as frozen:
        expire(client, "send_message-0-x", house, times=2)
        frozen.send_signal(signal.SIGSTOP)
        for user in "123":
            expire(client, f"send_message-{user}-x", house)
        heard_at = house.heard[-1].heard_at
        until(lambda: house.ledger.now() > heard_at + 2.5 * WINDOW_S * 1000)
        assert len(house.heard) == 5
        frozen.send_signal(signal.SIGCONT)
        until(lambda: len(house.heard) == 8)
        for late in house.heard[5:]:
            assert late.since <= heard_at < late.heard_at - WINDOW_S * 1000
        expire(client, "send_message-1-x", house, times=2)
        until(lambda: idle(house) and len(house.ran) == 5)
    assert sorted(key["user"] for key in keys_of(house)) == ["0", "1", "1", "2", "3"]


def test_a_bridge_that_is_killed_beside_another_loses_nothing(
    server: RedisServer, client: redis.Redis, house: Triggers
) -> None:
    with beside_another(server, house) as killed:
        for n in range(100):
            client.set(f"send_message-{n}-x", "v", px=100 + 6 * n)
        until(lambda: len(house.ran) > 30)
        killed.kill()
        until(lambda: len(house.ran) >= 100 and idle(house))
    assert sorted(int(key["user"]) for key in keys_of(house)) == list(range(100))


def test_each_time_it_is_set_and_expires_is_a_task_but_within_the_window_one(
    server: RedisServer, client: redis.Redis, house: Triggers
) -> None:
    with bridging(server, house, watched=WATCHED):
        expire(client, "send_message-1-x", house)
        first = house.heard[0].heard_at
        expire(client, "send_message-1-x", house, in_ms=30)
        assert house.heard[1].heard_at - first <= WINDOW_S * 1000, "this machine was too slow for the test"
        until(lambda: house.ran and idle(house))
        for n in (2, 3):
            before = house.heard[-1].heard_at
            until(lambda before=before: house.ledger.now() > before + WINDOW_S * 1000)
            expire(client, "send_message-1-x", house)
            until(lambda n=n: len(house.ran) == n)
    assert len({task.id for task in house.ran}) == 3


def test_a_task_that_is_slow_does_not_swallow_the_next_expiry(
    server: RedisServer, client: redis.Redis, house: Triggers
) -> None:
    with bridging(server, house, watched=WATCHED):
        house.gate.clear()
        expire(client, "send_message-1-x", house)
        until(lambda: len(house.ran) == 1)
        until(lambda: house.ledger.now() > house.heard[0].heard_at + WINDOW_S * 1000)
        expire(client, "send_message-1-x", house)
        until(lambda: len(house.ran) == 2)
        assert house.ledger.stats(Shard()).leased == 2, "both are under way"
        house.gate.set()
        until(lambda: idle(house))


class Forgetful:
    """A function that does its work, and fails before its answer is there."""

    def __init__(self, house: Triggers, times: int) -> None:
        self._house = house
        self._left = times

    def invoke(self, function: str, event: Any) -> Any:
        answer = self._house.invoke(function, event)
        if event.get("expired") and self._left:
            self._left -= 1
            raise InvocationRejected("it timed out")
        return answer

    def send(self, function: str, event: Any) -> None:
        raise AssertionError((function, event))


def test_an_invocation_whose_answer_was_lost_is_made_again_and_makes_nothing_twice(
    server: RedisServer, client: redis.Redis, house: Triggers
) -> None:
    with bridging(server, Forgetful(house, 4), watched=WATCHED) as bridge:
        client.set("send_message-1-x", "v", px=50)
        until(lambda: len(house.heard) == 5)
        until(lambda: house.ran and idle(house))
        assert bridge.stats().lost == 0
    assert len(set(house.heard)) == 1
    assert len(house.ran) == 1


def test_where_notifications_are_refused_it_is_said_loudly_that_watched_keys_are_not_heard(
    server: RedisServer, client: redis.Redis, house: Triggers, caplog: pytest.LogCaptureFixture
) -> None:
    client.acl_setuser("admin", enabled=True, passwords=["+pw"], commands=["+@all"], keys=["*"], channels=["*"])
    client.execute_command("ACL", "SETUSER", "default", "-config")
    with bridging(server, house, watched=WATCHED):
        until(lambda: "WATCHED KEYS ARE NOT HEARD" in caplog.text)
    [record] = [record for record in caplog.records if "NOT HEARD" in record.getMessage()]
    assert record.levelno == logging.ERROR


def test_a_key_that_expires_while_nobody_listens_makes_nothing_later(
    server: RedisServer, client: redis.Redis, house: Triggers
) -> None:
    client.set("send_message-1-x", "v", px=20)
    until(lambda: not client.exists("send_message-1-x"))
    with bridging(server, house, watched=WATCHED):
        expire(client, "send_message-2-x", house)
        until(lambda: house.ran and idle(house))
    assert keys_of(house) == [{"user": "2", "type": "x"}]


def test_what_expired_while_the_bridge_was_away_is_said_to_be_unheard_and_the_next_is_heard(
    server: RedisServer, client: redis.Redis, house: Triggers, caplog: pytest.LogCaptureFixture
) -> None:
    with bridging(server, house, watched=WATCHED):
        client.client_kill_filter(_type="pubsub")
        until(lambda: "watched keys that expired in those" in caplog.text)
        expire(client, "send_message-1-x", house)
        until(lambda: house.ran)


def test_a_lingering_tick_hears_them_and_two_at_the_change_count_once(
    server: RedisServer, client: redis.Redis, house: Triggers
) -> None:
    ran: list[Task] = []
    options: dict[str, Any] = {"linger_ms": 60_000, "remaining_ms": (left := Open()), "watches": WATCHES}
    with lingering(server, ran.append, **options) as first:
        until(lambda: first.stats().events)
        with lingering(server, ran.append, **options) as second:
            until(lambda: second.stats().events)
            client.set("send_message-1-x", "v", px=50)
            until(lambda: first.stats().keys == second.stats().keys == 1)
            until(lambda: house.ledger.stats(Shard()).done == 1)
            time.sleep(0.2)  # a second task would be there by now
            left.is_over = True
    assert [task.payload["key"] for task in ran] == [{"user": "1", "type": "x"}]
    assert first.counts["added"] + second.counts["added"] == 1


def test_in_a_cluster_a_key_is_heard_on_whichever_node_it_is(cluster: ClusterServers) -> None:
    with (
        triggers(cluster, WATCHES) as house,
        triggers(cluster, WATCHES) as other,
        cluster.client() as client,
        bridging(cluster, house, watched=WATCHED),
        bridging(cluster, other, watched=WATCHED),
    ):
        keys = [f"send_message-{n}-x" for n in range(20)]
        assert len({cluster.owner(key) for key in keys}) == 3
        for key in keys:
            client.set(key, "v", px=50)
        until(lambda: len(house.heard) == len(other.heard) == 20)
        until(lambda: house.ledger.stats(Shard()).done == 20)
    assert sorted(int(key["user"]) for key in keys_of(house) + keys_of(other)) == list(range(20))
