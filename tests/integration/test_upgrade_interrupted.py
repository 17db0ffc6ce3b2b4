"""An upgrade of the records that is cut off, meets another, or loses its server: every task is there, and runs once."""

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from duecourse.adapters.redis.connect import connect
from duecourse.adapters.redis.keys import keys_of
from duecourse.adapters.redis.layout import NEWEST, OLDEST
from duecourse.adapters.redis.store import RedisStore
from duecourse.adapters.redis.upgrade import Upgrade, Upgraded
from duecourse.domain.task import NewTask, Shard
from duecourse.errors import StoreFull, StoreUnavailable
from tests.support import redis_ledger
from tests.support.former import VERSIONS, Former, former_ledger, told
from tests.support.ledger import LEASE_MS
from tests.support.matrix import MATRIX
from tests.support.redis_cluster import ClusterServers
from tests.support.redis_server import REDIS, SERVERS, RedisServer, need
from tests.support.upgrades import (
    LARGE,
    MANY,
    SHARD,
    Cut,
    assert_upgraded,
    cut,
    fill,
    make_old,
    run_all,
    silent,
    upgrade,
    versions,
)
from tests.support.wait import until

OTHER = Shard("other")
SHARDS = (SHARD, OTHER)


class CutShort(Upgrade):
    """An upgrade that is killed before its nth script or command, or once the server has done that."""

    def cut_at(self, steps: int, *, done: bool) -> "CutShort":
        call, left = self._scripts.call, iter(range(steps))

        def limited(command: Callable[[], Any], **how: Any) -> Any:
            last = next(left, None) is None
            if last and not done:
                raise Cut
            answer = call(command, **how)
            if last:
                raise Cut
            return answer

        self._scripts.call = limited  # type: ignore[method-assign]
        return self


@pytest.fixture(params=SERVERS)
def former(request: pytest.FixtureRequest) -> Iterator[Former]:
    """The ledger of 0.1.0 on a server of its own."""
    with former_ledger(VERSIONS[0], request.param) as ledger:
        yield ledger


@contextmanager
def restored(client: redis.Redis) -> Iterator[Callable[[], None]]:
    """A way back to what the server has now."""
    kept = {key: client.dump(key) for key in client.scan_iter()}

    def restore() -> None:
        client.flushall()
        for key, value in kept.items():
            if value is not None:  # a bell may have rung between the two commands
                client.restore(key, 0, value)

    yield restore


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_an_upgrade_that_is_killed_at_any_step_is_finished_by_the_next_and_work_goes_on_between(
    former: Former, done: bool
) -> None:
    """Of a ledger with tasks in every state, and a queue whose tasks run after the kill."""
    make_old(former.client, OTHER)
    waiting = fill(former.store, "other", 30, delay_ms=0)
    shown, finished, steps = former.shown["tasks"], False, 0
    with restored(former.client) as restore:
        while not finished:
            restore()
            try:
                CutShort(former.client, "duecourse", silent).cut_at(steps, done=done).run(0)
                finished = True
            except Cut:
                steps += 1
            assert {id: told(former.get(id)) for id in shown} == shown
            redis_ledger.check(former.client, SHARD)
            assert sorted(run_all(former.store, OTHER)) == sorted(waiting)
            upgrade(former.client)
            assert_upgraded(former.client, *SHARDS)
            assert {id: told(former.get(id)) for id in shown} == shown
            assert run_all(former.store, OTHER) == []
    assert steps > 12


def test_two_upgrades_at_once_are_one(former: Former) -> None:
    count = former.client.hlen(keys_of("duecourse", SHARD).tasks)
    inner: list[Upgraded] = []

    def another(line: str) -> None:
        if line.startswith("watching") and not inner:
            inner.append(Upgraded(0, 0, 0))
            inner.append(upgrade(former.client))

    assert upgrade(former.client, another) == Upgraded(1, 1, 0)
    assert inner[1] == Upgraded(1, 1, count)
    assert_upgraded(former.client, SHARD)


def test_upgrades_and_sweeps_beside_each_other_while_work_goes_on(redis_server: RedisServer) -> None:
    with connect(redis_server.url) as client:
        make_old(client, *SHARDS)
        store = RedisStore(client)
        ids = fill(store, "default", MANY) | fill(store, "other", MANY)
        over = threading.Event()

        def sweep() -> None:
            while not over.is_set():
                for shard in SHARDS:
                    RedisStore(client).sweep(shard, retention_ms=LEASE_MS * 1_000)

        with ThreadPoolExecutor(8) as threads:
            sweeping = threads.submit(sweep)
            upgrades = [threads.submit(upgrade, client) for _ in range(3)]
            working = [threads.submit(run_all, RedisStore(client), *SHARDS) for _ in range(2)]
            done = [one.result() for one in upgrades]
            ran = [id for one in working for id in one.result()]
            over.set()
            sweeping.result()
        ran += run_all(store, *SHARDS)
        assert sorted(ran) == sorted(ids)
        assert max(one.raised for one in done) == len(SHARDS)
        assert_upgraded(client, *SHARDS)


def test_a_queue_that_is_new_while_it_watches_is_upgraded_too(former: Former) -> None:
    def add(line: str) -> None:
        if line.startswith("watching 1 of 1"):
            former.store.add([NewTask("new", "work", LARGE, queue="other")])

    assert upgrade(former.client, add)[:2] == (2, 2)
    assert_upgraded(former.client, *SHARDS)


@pytest.mark.parametrize("binary", REDIS)
def test_records_that_a_pass_has_missed_since_its_server_was_started_again_are_rewritten(binary: str) -> None:
    """A server that has started hashes anew: what a cursor has passed is not what was looked at before."""
    with RedisServer(need(binary), "--appendonly", "yes", "--appendfsync", "always") as server:
        with connect(server.url) as client:
            make_old(client, SHARD)
            fill(RedisStore(client), "default", MANY, delay_ms=99_000)
            with pytest.raises(Cut):
                upgrade(client, cut)
            assert versions(client, SHARD) == {OLDEST, NEWEST}
        server.stop(signal.SIGKILL)
        server.start()
        with connect(server.url) as client:
            store = RedisStore(client)
            while store.sweep(SHARD, retention_ms=LEASE_MS).more:
                pass
            assert store.stats(SHARD).scheduled == MANY
            assert_upgraded(client, SHARD)


@pytest.mark.parametrize("spoil", [lambda _: b"", lambda data: data[:-1], lambda data: bytes([NEWEST + 1]) + data[1:]])
def test_what_cannot_be_read_holds_up_no_upgrade_and_is_left_as_it_is(
    redis_client: redis.Redis, spoil: Callable[[bytes], bytes]
) -> None:
    store, tasks = RedisStore(redis_client), keys_of("duecourse", SHARD).tasks
    fill(store, "default", 3)
    redis_client.hset(tasks, "-/default-1", spoil(redis_client.hget(tasks, "-/default-1") or b""))
    before = redis_client.hgetall(tasks)
    assert upgrade(redis_client) == (1, 0, 0)
    assert redis_client.hgetall(tasks) == before


def test_an_upgrade_whose_server_loses_it_says_so_and_can_be_run_again(redis_server: RedisServer) -> None:
    """As a failover to a replica that did not have it yet."""
    with connect(redis_server.url) as client:
        make_old(client, SHARD)
        store = RedisStore(client)
        ids = fill(store, "default", MANY)
        with restored(client) as restore:

            def fail_over(line: str) -> None:
                if "rewrote" in line:
                    restore()

            with pytest.raises(StoreUnavailable, match="has lost the upgrade of default/0: run the same command again"):
                upgrade(client, fail_over)
        assert versions(client, SHARD) == {OLDEST}
        upgrade(client)
        assert_upgraded(client, SHARD)
        assert sorted(run_all(store, SHARD)) == sorted(ids)


def test_an_upgrade_without_memory_raises_what_is_there_and_its_error_says_why(redis_server: RedisServer) -> None:
    with connect(redis_server.url) as client:
        make_old(client, SHARD)
        store = RedisStore(client)
        ids = fill(store, "default", 600)
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(StoreFull):
                upgrade(client)
            while store.sweep(SHARD, retention_ms=LEASE_MS * 1_000).more:
                pass
            assert versions(client, SHARD) == {NEWEST}
            ran = run_all(store, SHARD)
        finally:
            client.config_set("maxmemory", 0)
        assert sorted(ran) == sorted(ids)
        upgrade(client)
        assert_upgraded(client, SHARD)


@MATRIX
def test_an_upgrade_of_a_cluster_goes_on_after_a_failover(cluster: ClusterServers) -> None:
    with connect(cluster.url) as client:
        queues = [Shard(f"q{n}") for n in range(4)]
        make_old(client, *queues)
        store = RedisStore(client, wait=1)
        ids = {id for shard in queues for id in fill(store, shard.queue, 600)}
        killed: list[int] = []

        def kill(line: str) -> None:
            if "rewrote" in line and not killed:
                killed.append(cluster.owner(keys_of("duecourse", queues[0]).tasks))
                cluster.kill(killed[0])

        with pytest.raises(StoreUnavailable):
            upgrade(client, kill)
        cluster.wait_failover()

        def again() -> bool:
            try:
                return bool(upgrade(client))
            except StoreUnavailable:
                return False

        until(again, every=0.1)
        assert_upgraded(client, *queues)
        assert sorted(run_all(store, *queues)) == sorted(ids)
