"""A cluster under load, through the bridge and the engine: a primary is killed, slots are moved; nothing is lost."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count, cycle
from typing import Any

import pytest
from redis.crc import key_slot

from duecourse.errors import InvocationRejected, StoreUnavailable
from duecourse.ledger.connect import connect, node_of
from duecourse.ledger.keys import keys_of, shards_key
from duecourse.ledger.operation_types import Reply
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import NewTask, Shard, Task
from duecourse.ringing.bridge_event import read_rings, shards_of
from duecourse.ringing.tick import Retention, Sweeper
from tests.support import redis_ledger
from tests.support.bridges import NAMESPACE, bridging
from tests.support.engine import Engine, ample, engine
from tests.support.matrix import MATRIX, in_turn
from tests.support.redis_cluster import ClusterServers
from tests.support.redis_server import VALKEY, newest
from tests.support.wait import until

SHARDS = Sharding({"default": 8})
LEASE_MS = 2_000
DELAY_MS = 300
LATE_MS = 100


class Work:
    """Tasks that are added by threads of their own, and what became of them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._stop = threading.Event()
        self.acknowledged: list[str] = []
        self.refused = 0
        self.ran: Counter[str] = Counter()
        self.late: dict[str, float] = {}

    def run(self, task: Task) -> None:
        """What a task does: it is counted, and how late it began."""
        self.ran[task.id] += 1
        self.late[task.id] = time.time() * 1000 - task.due_at

    def add(self, lane: int) -> None:
        """Add tasks one by one, each again until it is acknowledged."""
        for n in count():
            while not self._stop.is_set() and not self.add_one(f"{lane}-{n}"):
                time.sleep(0.02)
            if self._stop.wait(0.002):
                return

    def add_one(self, id: str) -> bool:
        try:
            self._ledger.add([NewTask(id, "work", delay_ms=DELAY_MS)])
        except StoreUnavailable:
            self.refused += 1
            return False
        self.acknowledged.append(id)
        return True

    def missing(self) -> set[str]:
        """What was acknowledged and has not run yet."""
        return set(self.acknowledged) - set(self.ran)

    def stop(self) -> None:
        self._stop.set()


class Function:
    """`on_expired` as the bridge invokes it, in this process."""

    def __init__(self, run: Engine) -> None:
        self._run = run

    def invoke(self, _function: str, event: Any) -> Any:
        try:
            return self._run.drainer.drain(shards_of(read_rings(event).bells, NAMESPACE).shards, ample)._asdict()
        except StoreUnavailable as error:
            raise InvocationRejected(str(error)) from error

    def send(self, function: str, event: Any) -> None:
        raise AssertionError((function, event))


@contextmanager
def load(cluster: ClusterServers, *, wait: int) -> Iterator[Work]:
    """Three threads add, the bridge rings, the engine drains."""
    with connect(cluster.url) as client:
        ledger = Ledger(client, NAMESPACE, sharding=SHARDS, wait=wait)
        work = Work(ledger)
        adders = [threading.Thread(target=work.add, args=(lane,)) for lane in range(3)]
        with engine(ledger, work.run, size=8, lease_ms=LEASE_MS) as run, bridging(cluster, Function(run), beat_s=1):
            with ExitStack() as ending:
                for adder in adders:
                    adder.start()
                    ending.callback(adder.join)
                ending.callback(work.stop)
                yield work
            until(lambda: not work.missing())
        for shard in SHARDS.every("default"):
            redis_ledger.check(client, shard, NAMESPACE)


@pytest.fixture
def whole(cluster: ClusterServers) -> Iterator[ClusterServers]:
    yield cluster
    cluster.emptied()


def test_a_primary_killed_under_load_costs_time_and_no_task(whole: ClusterServers) -> None:
    port = whole.owner(keys_of(NAMESPACE, Shard("default", 3)).tasks)
    with load(whole, wait=1) as work:
        until(lambda: len(work.ran) > 200)
        whole.kill(port)
        killed = len(work.acknowledged)
        whole.wait_failover()
        until(lambda: not [id for id in work.acknowledged[:killed] if id not in work.ran])
        whole.revive(port)  # only then has each primary a replica again, which an add here waits for
        until(lambda: len(work.acknowledged) > killed + 200)
        on_time_again(work)
    assert work.refused > 0, "it was killed in the midst"


@MATRIX
def test_a_process_that_only_adds_and_waits_for_replicas_follows_a_failover(whole: ClusterServers) -> None:
    port = whole.owner(keys_of(NAMESPACE, Shard()).tasks)
    with connect(whole.url) as client:
        ledger = Ledger(client, NAMESPACE, wait=1)
        ledger.add([NewTask("before", "work")])
        whole.kill(port)
        whole.wait_failover()
        until(lambda: "0 of 1 replicas" in told(ledger), seconds=5)  # by the one that took over
        whole.revive(port)
        until(lambda: told(ledger) == "added")


QUEUES = (f"q-{n}" for n in count())


def elsewhere(cluster: ClusterServers, port: int) -> Shard:
    """A shard that no test has used, and that is not on this primary."""
    return next(one for one in map(Shard, QUEUES) if cluster.owner(keys_of(NAMESPACE, one).tasks) != port)


def lose_the_record(cluster: ClusterServers) -> Shard:
    """A shard with a task whose queue the failover of another node has made unknown."""
    first = cluster.owner(shards_key(NAMESPACE))
    shard = elsewhere(cluster, first)
    with connect(cluster.url) as client, cluster.cut_off(cluster.replica_of(first)):
        [added] = Ledger(client, NAMESPACE).add([NewTask("a", "work", queue=shard.queue)])
        assert added.reply is Reply.CREATED
        cluster.kill(first)
    cluster.wait_failover()
    assert not is_registered(cluster, shard)
    return shard


def is_registered(cluster: ClusterServers, shard: Shard) -> bool:
    with cluster.client() as client:
        return bool(client.sismember(shards_key(NAMESPACE), f"{shard}/1"))


def meet_by_adding(ledger: Ledger, shard: Shard) -> None:
    ledger.add([NewTask("b", "work", queue=shard.queue)])


def meet_by_claiming(ledger: Ledger, shard: Shard) -> None:
    assert len(ledger.claim(shard, 1, lease_ms=LEASE_MS).tasks) == 1


def meet_by_a_tick(ledger: Ledger, shard: Shard) -> None:
    with engine(ledger, lambda _task: None) as run:
        found = Sweeper(ledger, run.drainer, Retention(0), margin_ms=1_000).survey(lambda: 10_000)
    assert found.shards == [shard]


@pytest.mark.parametrize("meet", in_turn(meet_by_claiming, meet_by_adding, meet_by_a_tick))
def test_a_queue_whose_record_a_failover_lost_is_registered_again_once_it_is_met(
    whole: ClusterServers, meet: Callable[[Ledger, Shard], None]
) -> None:
    shard = lose_the_record(whole)
    with connect(whole.url) as client:
        meet(Ledger(client, NAMESPACE), shard)
        until(lambda: is_registered(whole, shard))  # a claim does not wait for it


@MATRIX
def test_a_process_that_has_added_to_a_queue_registers_it_again_after_a_failover(whole: ClusterServers) -> None:
    first = whole.owner(shards_key(NAMESPACE))
    with connect(whole.url) as client:
        ledger = Ledger(client, NAMESPACE)
        with whole.cut_off(whole.replica_of(first)):
            ledger.add([NewTask("a", "work")])
            whole.kill(first)
        whole.wait_failover()
        until(lambda: told(ledger) == "added")
        with suppress(StoreUnavailable):
            ledger.now()  # of the node that is dead: what this process knew of it may be lost
        until(lambda: told(ledger) == "added" and is_registered(whole, Shard()))


def test_an_add_to_a_new_queue_waits_until_a_replica_has_the_queue_too(whole: ClusterServers) -> None:
    first = whole.owner(shards_key(NAMESPACE))
    queue = elsewhere(whole, first).queue
    with connect(whole.url) as client:
        ledger = Ledger(client, NAMESPACE, wait=1)
        with whole.cut_off(whole.replica_of(first)):
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
                    ledger.add([NewTask("a", "work", queue=queue)])
        whole.wait_whole()
        ledger.add([NewTask("a", "work", queue=queue)])


def test_an_add_waits_until_a_replica_has_a_record_that_stood_there_already(whole: ClusterServers) -> None:
    first = whole.owner(shards_key(NAMESPACE))
    queue = elsewhere(whole, first).queue
    with connect(whole.url) as client, connect(whole.url) as other:
        careless, careful = Ledger(other, NAMESPACE), Ledger(client, NAMESPACE, wait=1)
        with whole.paused(whole.replica_of(first)):
            careless.add([NewTask("a", "work", queue=queue)])
            with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
                careful.add([NewTask("b", "work", queue=queue)])
        whole.wait_whole()
        careful.add([NewTask("b", "work", queue=queue)])


@pytest.mark.parametrize("lacking", ["record", "shard"])
def test_a_setting_waits_for_a_replica_of_the_record_and_for_one_of_its_shard(
    whole: ClusterServers, lacking: str
) -> None:
    first = whole.owner(shards_key(NAMESPACE))
    shard = elsewhere(whole, first)
    primary = first if lacking == "record" else whole.owner(keys_of(NAMESPACE, shard).meta)
    with connect(whole.url) as client:
        ledger = Ledger(client, NAMESPACE, wait=1)
        with whole.cut_off(whole.replica_of(primary)), pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            ledger.configure(shard.queue, {"paused": True})
        whole.wait_whole()
        ledger.configure(shard.queue, {"paused": True})


def test_a_primary_that_stays_dead_stops_its_own_shards_alone(whole: ClusterServers) -> None:
    """Where the cluster goes on without full coverage, the tick works the rest of it, and then tells."""
    first = whole.owner(shards_key(NAMESPACE))
    dead = next(port for port in whole.primaries() if port != first)
    gone = {shard for shard in SHARDS.every("default") if whole.owner(keys_of(NAMESPACE, shard).tasks) == dead}
    ran: list[str] = []
    ids = [f"t-{n}" for n in range(64)]
    with connect(whole.url) as client, without_coverage(whole):
        ledger = Ledger(client, NAMESPACE, sharding=SHARDS)
        ledger.add([NewTask(id, "work") for id in ids])
        whole.kill(dead)
        with engine(ledger, lambda task: ran.append(task.id)) as run:
            sweeper = Sweeper(ledger, run.drainer, Retention(0), margin_ms=1_000)
            found = sweeper.survey(ample)
            assert set(found.shards) == set(SHARDS.every("default")) - gone
            sweeper.tick(found, ample)
            assert sorted(ran) == sorted(id for id in ids if ledger.shard_of("default", id) not in gone)
            whole.revive(dead)
            until(lambda: sweeper.survey(ample).away is None)
    assert isinstance(found.away, StoreUnavailable)
    assert gone


def test_a_primary_that_stays_dead_with_the_record_of_shards_leaves_the_others_to_those_who_read_it(
    whole: ClusterServers,
) -> None:
    dead = whole.owner(shards_key(NAMESPACE))
    known = elsewhere(whole, dead)
    ran: list[str] = []
    with connect(whole.url) as client, connect(whole.url) as another, without_coverage(whole):
        ledger, fresh = Ledger(client, NAMESPACE), Ledger(another, NAMESPACE)
        ledger.add([NewTask("before", "work", queue=known.queue)])
        with engine(ledger, lambda task: ran.append(task.id)) as run, engine(fresh, lambda _task: None) as unread:
            sweeper = Sweeper(ledger, run.drainer, Retention(0), margin_ms=1_000)
            sweeper.tick(sweeper.survey(ample), ample)
            whole.kill(dead)
            ledger.add([NewTask("after", "work", queue=known.queue)])
            with pytest.raises(StoreUnavailable):
                ledger.add([NewTask("new", "work", queue=elsewhere(whole, dead).queue)])
            sweeper.tick(sweeper.survey(ample), ample)
            assert ran == ["before", "after"]
            with pytest.raises(StoreUnavailable):
                Sweeper(fresh, unread.drainer, Retention(0), margin_ms=1_000).survey(ample)
            whole.revive(dead)
            until(lambda: sweeper.survey(ample).away is None)


@contextmanager
def without_coverage(cluster: ClusterServers) -> Iterator[None]:
    """A cluster that goes on without some of its slots, and whose replicas take nobody's place."""
    try:
        cluster.configure({"cluster-require-full-coverage": "no", "cluster-replica-no-failover": "yes"})
        yield
    finally:
        cluster.configure({"cluster-require-full-coverage": "yes", "cluster-replica-no-failover": "no"})


def told(ledger: Ledger) -> str:
    """What an add is told."""
    try:
        ledger.add([NewTask("after", "work")])
    except StoreUnavailable as error:
        return str(error)
    return "added"


def on_time_again(work: Work) -> None:
    """From some moment on all of a hundred tasks in a row begin on time."""

    def on_time() -> bool:
        ids = [id for id in work.acknowledged if id in work.late][-100:]
        return sum(work.late[id] < LATE_MS for id in ids) >= 98

    until(on_time, every=0.05)


@pytest.fixture(params=["keys one by one", "at once"])
def moves(
    request: pytest.FixtureRequest, cluster_of: Callable[[str], ClusterServers]
) -> Iterator[tuple[ClusterServers, Callable[[int, int, int], None]]]:
    """An empty cluster and its way to move a slot: Redis's by MIGRATE, Valkey's in one step."""
    at_once = request.param == "at once"
    cluster = cluster_of(VALKEY if at_once else newest()).emptied()
    yield cluster, cluster.move_slot_at_once if at_once else cluster.move_slot
    cluster.emptied()


@MATRIX
def test_slots_moved_under_load_cost_no_task_and_hardly_any_time(
    moves: tuple[ClusterServers, Callable[[int, int, int], None]],
) -> None:
    whole, move = moves
    slots = [key_slot(keys_of(NAMESPACE, shard).tasks.encode()) for shard in SHARDS.every("default")]
    with load(whole, wait=0) as work:
        until(lambda: len(work.ran) > 200)
        begin = len(work.acknowledged)
        for slot, target in zip(slots * 2, cycle(whole.primaries()), strict=False):
            source = whole.owner_of_slot(slot)
            if source != target:
                move(slot, source, target)
            at = len(work.acknowledged)
            until(lambda at=at: len(work.acknowledged) > at + 20)
        on_time_again(work)
        moved = len(work.acknowledged) - begin
    assert moved > 300
    assert max(work.ran.values()) == 1, "no lease lapsed"


def test_while_a_slot_is_on_the_move_its_shard_is_away_and_nothing_is_done_by_halves(whole: ClusterServers) -> None:
    shard, other = Shard("default", 0), Shard("default", 1)
    tasks = keys_of("duecourse", shard).tasks
    source = whole.owner(tasks)
    target = next(port for port in whole.primaries() if port != source)
    ids = {SHARDS.of("default", id): id for id in map(str, range(99))}
    with connect(whole.url) as client:
        ledger = Ledger(client, sharding=SHARDS)
        ledger.add([NewTask(ids[shard], "work"), NewTask(ids[other], "work")])
        whole.begin_move(key_slot(tasks.encode()), source, target)
        whole.move_keys(key_slot(tasks.encode()), source, target)
        with pytest.raises(StoreUnavailable):
            ledger.claim(shard, 1, lease_ms=LEASE_MS)
        task = ledger.get("default", ids[shard])
        assert task
        assert task.run == 0
        assert len(ledger.claim(other, 1, lease_ms=LEASE_MS).tasks) == 1
        whole.end_move(key_slot(tasks.encode()), target)
        assert [t.run for t in ledger.claim(shard, 1, lease_ms=LEASE_MS).tasks] == [1]
        assert node_of(client, tasks).get_connection_kwargs()["port"] == target
