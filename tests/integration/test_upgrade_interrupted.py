"""An upgrade of the records that is cut off, meets another, or loses its server: every task is there, and runs once."""

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from duecourse.adapters.redis.connect import Client, connect
from duecourse.adapters.redis.keys import keys_of, ledger_key
from duecourse.adapters.redis.layout import NEWEST, OLDEST
from duecourse.adapters.redis.reshard import Reshard
from duecourse.adapters.redis.store import RedisStore
from duecourse.adapters.redis.upgrade import Upgrade, Upgraded
from duecourse.domain.outcomes import Ending
from duecourse.domain.shards import Sharding
from duecourse.domain.task import NewTask, Shard
from duecourse.errors import StoreFull, StoreMisused, StoreUnavailable
from duecourse.ports.leases import Settled
from tests.support import redis_ledger
from tests.support.former import VERSIONS, Former, former_ledger, told
from tests.support.ledger import LEASE_MS, ending
from tests.support.redis_cluster import ClusterServers
from tests.support.redis_server import REDIS, SERVERS, RedisServer, need
from tests.support.wait import until

SHARD = Shard()
OTHER = Shard("other")
SHARDS = (SHARD, OTHER)
LARGE = '"' + 3_000 * "x" + '"'
MANY = 1_000


class Cut(Exception):
    """A kill, at one place."""


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


def cut(line: str) -> None:
    """A kill once the first records are rewritten, and others are not."""
    if "rewrote" in line:
        raise Cut


def silent(_line: str) -> None:
    """What nobody reads."""


def upgrade(client: Client, tell: Callable[[str], object] = silent) -> Upgraded:
    return Upgrade(client, "duecourse", tell).run(0)


def versions(client: Client, *shards: Shard) -> set[int]:
    every = [client.hgetall(keys_of("duecourse", shard).tasks) for shard in shards]
    return {data[0] for tasks in every for name, data in tasks.items() if b"=" not in name}


def make_old(client: Client, *shards: Shard) -> None:
    """A ledger of before: 0.1.0 has begun each of these shards."""
    client.hdel(ledger_key("duecourse"), "layout")
    for shard in shards:
        client.sadd("duecourse:shards", f"{shard}/1")
        client.hset(keys_of("duecourse", shard).meta, "fence", 7)


def fill(store: RedisStore, queue: str, count: int, **fields: Any) -> set[str]:
    """Tasks with large payloads; answers their ids."""
    tasks = [NewTask(f"{queue}-{n}", "work", LARGE, queue=queue, **fields) for n in range(count)]
    store.add(tasks)
    return {task.id for task in tasks}


def run_all(store: RedisStore, *shards: Shard) -> list[str]:
    """Claim and end whatever is due; answers the ids in their order."""
    ran: list[str] = []
    for shard in shards:
        while tasks := store.claim(shard, 100, lease_ms=LEASE_MS).tasks:
            assert {task.payload_json for task in tasks} == {LARGE}
            answers = store.settle(shard, [ending(task, Ending.DONE) for task in tasks])
            assert set(answers) == {Settled.DONE}
            ran += [task.id for task in tasks]
    return ran


def assert_upgraded(client: Client, *shards: Shard) -> None:
    assert versions(client, *shards) == {NEWEST}
    assert client.hget(ledger_key("duecourse"), "layout") == b"%d" % NEWEST
    for shard in shards:
        meta = client.hgetall(keys_of("duecourse", shard).meta)
        assert meta[b"layout"] == b"%d" % NEWEST
        assert not meta.keys() & {b"rewrite", b"drawn", b"others", b"others_at"}
        redis_ledger.check(client, shard)


def sweep_all(client: Client, *shards: Shard) -> None:
    store = RedisStore(client, sharding=Sharding({"default": 3}))
    for shard in shards:
        while store.sweep(shard, retention_ms=LEASE_MS * 1_000).more:
            pass


def assert_in_three(client: Client, ids: set[str], then: Callable[..., object]) -> None:
    """Each task is in one of three shards, of the newest version after `then`, and runs once."""
    sharding = Sharding({"default": 3})
    shards = sharding.every("default")
    then(client, *shards)
    assert_upgraded(client, *shards)
    assert sorted(run_all(RedisStore(client, sharding=sharding), *shards)) == sorted(ids)


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


def test_an_upgrade_beside_a_change_of_shards_is_told_to_come_again_or_is_done(redis_server: RedisServer) -> None:
    with connect(redis_server.url) as client:
        make_old(client, SHARD)
        ids = fill(RedisStore(client), "default", MANY)
        refused, meanwhile = list[str](), list[str]()

        def upgrade_meanwhile(line: str) -> None:
            meanwhile.append(line)
            try:
                upgrade(client)
            except StoreMisused as error:
                refused.append(str(error))

        Reshard(client, "duecourse", "default", 3, upgrade_meanwhile).run(0)
        assert len(meanwhile) > 3
        assert refused
        assert all("is being changed: run this again after that" in line for line in refused)
        assert_in_three(client, ids, lambda *_: upgrade(client))


def test_a_change_of_shards_in_the_midst_of_an_upgrade_loses_nothing_and_sweeps_rewrite_the_rest(
    redis_server: RedisServer,
) -> None:
    """Records of both versions then meet in a shard of either."""
    with connect(redis_server.url) as client:
        make_old(client, SHARD)
        ids = fill(RedisStore(client), "default", MANY)
        with pytest.raises(Cut):
            upgrade(client, cut)
        assert versions(client, SHARD) == {OLDEST, NEWEST}
        Reshard(client, "duecourse", "default", 3, silent).run(0)
        assert_in_three(client, ids, sweep_all)


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


def test_old_records_that_move_into_a_shard_that_was_upgraded_are_rewritten_there(redis_client: redis.Redis) -> None:
    two, shards = Sharding({"default": 2}), Sharding({"default": 2}).every("default")
    make_old(redis_client)
    for shard in shards:
        redis_client.sadd("duecourse:shards", f"{shard}/2")
        redis_client.hset(keys_of("duecourse", shard).meta, mapping={"fence": 7, "shards": 2})
    store = RedisStore(redis_client, sharding=two)
    ids = fill(store, "default", 40)
    redis_client.hset(keys_of("duecourse", SHARD).meta, mapping={"layout": NEWEST, "rewrite": 0})
    while store.sweep(SHARD, retention_ms=LEASE_MS).more:
        pass
    assert versions(redis_client, *shards) == {OLDEST, NEWEST}
    Reshard(redis_client, "duecourse", "default", 1, silent).run(0)
    store = RedisStore(redis_client)
    while store.sweep(SHARD, retention_ms=LEASE_MS).more:
        pass
    assert versions(redis_client, SHARD) == {NEWEST}
    assert sorted(run_all(store, SHARD)) == sorted(ids)
    redis_ledger.check(redis_client, SHARD)
