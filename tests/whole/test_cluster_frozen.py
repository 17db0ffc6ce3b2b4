"""A primary of a cluster stands still: its own queues wait, and all others are worked as if nothing had happened."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import count

import pytest

from duecourse.app import App, Parts
from duecourse.errors import StoreUnavailable
from duecourse.ledger.connect import connect
from duecourse.ledger.keys import keys_of, shards_key
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import NewTask, Shard, Status, Task
from duecourse.ringing.tick import Retention, Sweeper
from duecourse.running.event_loop import LOOP
from duecourse.running.leases import LeaseExtender
from duecourse.settings import Settings
from duecourse.task_handlers import task_handler
from duecourse.worker.child import Board, WorkerProcess
from tests.support.bridges import NAMESPACE
from tests.support.engine import ample, engine
from tests.support.redis_cluster import ClusterServers
from tests.support.wait import until

Site = tuple[ClusterServers, dict[int, str]]


@pytest.fixture
def site(cluster: ClusterServers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A cluster whose replicas take nobody's place, and a queue on each primary, by its port."""
    monkeypatch.setattr("duecourse.ledger.connect.ANSWER_S", 1.0)
    queues: dict[int, str] = {}
    for queue in (f"q{number}" for number in count()):
        queues.setdefault(cluster.owner(keys_of(NAMESPACE, Shard(queue)).tasks), queue)
        if len(queues) == len(cluster.primaries()):
            break
    cluster.configure({"cluster-require-full-coverage": "no", "cluster-replica-no-failover": "yes"})
    yield cluster, queues
    cluster.configure({"cluster-require-full-coverage": "yes", "cluster-replica-no-failover": "no"})
    cluster.wait_whole()


@pytest.fixture
def ledger(site: Site) -> Iterator[Ledger]:
    """A ledger of a process that has added to each queue before."""
    cluster, queues = site
    with connect(cluster.url) as client:
        ledger = Ledger(client, NAMESPACE)
        add(ledger, *queues.values(), id="first")
        yield ledger


def add(ledger: Ledger, *queues: str, id: str) -> None:
    """Add a task to each queue; a primary that had no processor for a while says at first that the cluster is down."""
    for queue in queues:
        until(lambda queue=queue: added(ledger, queue, id))


def added(ledger: Ledger, queue: str, id: str) -> bool:
    try:
        ledger.add([NewTask(f"{queue}-{id}", "work", queue=queue, delay_ms=50)])
    except StoreUnavailable:
        return False
    return True


def standing_still(site: Site) -> list[int]:
    """The primary that has the record of shards, and another one."""
    cluster, queues = site
    record = cluster.owner(shards_key(NAMESPACE))
    return [record, next(port for port in queues if port != record)]


@contextmanager
def worker(cluster: ClusterServers, ran: set[str]) -> Iterator[WorkerProcess]:
    """A worker's process, as threads of this one, that notes which tasks ran."""

    @task_handler(kind="work")
    def work(task: Task) -> None:
        ran.add(task.id)

    app = App(Settings(store=cluster.url, namespace=NAMESPACE, targets={"work": "worker"}))
    with closing(app), closing(Board.make()) as board:
        serving = WorkerProcess(app, {"work": work}, (), board, lambda task: pytest.fail(f"{task.id} ran apart"))
        serving.start()
        try:
            assert serving.wait_ready(30)
            yield serving
        finally:
            serving.stop(30)
            LOOP.forget()  # the tests' process lives on


def test_a_worker_goes_on_with_the_queues_of_the_others(site: Site, ledger: Ledger) -> None:
    cluster, queues = site
    ran = set[str]()
    with worker(cluster, ran) as serving:
        until(lambda: ran >= {f"{queue}-first" for queue in queues.values()})
        for port in standing_still(site):
            others = [queue for other, queue in queues.items() if other != port]
            with cluster.paused(port):
                for n in range(5):
                    add(ledger, *others, id=f"{port}-{n}")
                    until(lambda n=n, port=port, others=others: ran >= {f"{queue}-{port}-{n}" for queue in others})
            add(ledger, queues[port], id=f"{port}-after")
            until(lambda port=port: f"{queues[port]}-{port}-after" in ran)
        assert not serving.is_faulty


def test_a_tick_works_and_sweeps_the_shards_of_the_others(site: Site, ledger: Ledger) -> None:
    cluster, queues = site
    ran = set[str]()
    with engine(ledger, lambda task: ran.add(task.id)) as run:
        sweeper = Sweeper(ledger, run.drainer, Retention(0), margin_ms=1_000)
        sweeper.tick(sweeper.survey(ample), ample)
        for port in standing_still(site):
            others = [queue for other, queue in queues.items() if other != port]
            with cluster.paused(port):
                add(ledger, *others, id=str(port))
                until(lambda port=port, others=others: ticked(sweeper, ran) >= {f"{q}-{port}" for q in others})


def ticked(sweeper: Sweeper, ran: set[str]) -> set[str]:
    ticked = sweeper.tick(sweeper.survey(ample), ample)
    assert isinstance(ticked.away, StoreUnavailable)
    return ran


def test_leases_of_the_others_are_extended(site: Site, ledger: Ledger) -> None:
    cluster, queues = site
    add(ledger, *queues.values(), id="kept")
    claim = partial(ledger.claim, limit=10, lease_ms=20_000)
    tasks = {port: until(lambda queue=queue: claim(Shard(queue)).tasks)[0] for port, queue in queues.items()}
    port = next(iter(queues))
    kept = LeaseExtender(ledger)
    with cluster.paused(port), ExitStack() as running:
        for one in tasks.values():
            running.enter_context(kept.while_running(one))
        kept.extend()
        for other, task in tasks.items():
            if other != port:
                found = ledger.get(task.queue, task.id)
                assert found
                assert found.lease_expires_at > task.lease_expires_at


def test_who_waits_for_a_task_of_the_others_has_its_end(site: Site, ledger: Ledger) -> None:
    cluster, queues = site
    port, _ = standing_still(site)
    for queue in queues.values():
        ledger.add([NewTask("long", "work", queue=queue, delay_ms=600_000)])
    with closing(App(Settings(), Parts(ledger=ledger))) as app, ThreadPoolExecutor(3) as threads:
        waiting = {queue: threads.submit(app.waiting.wait, queue, "long", "-", 90.0) for queue in queues.values()}
        until(lambda: app.waits.count() == 3)
        with cluster.paused(port):
            for other, queue in queues.items():
                if other != port:
                    ledger.cancel(queue, ["long"])
                    assert waiting[queue].result(60).status is Status.CANCELLED
        until(lambda: cancelled(ledger, queues[port], "long"))
        assert waiting[queues[port]].result(60).status is Status.CANCELLED


def cancelled(ledger: Ledger, queue: str, id: str) -> bool:
    try:
        ledger.cancel(queue, [id])
    except StoreUnavailable:
        return False
    return True
