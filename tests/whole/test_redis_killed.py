"""What was acknowledged is still there when Redis has been killed outright, or had a full disk."""

import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from duecourse.errors import StoreUnavailable
from duecourse.ledger.connect import connect
from duecourse.ledger.operation_types import Settled
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending, NewTask, Shard, Status
from tests.support.engine import ample, engine
from tests.support.ledger import LATER_MS, SHARD, ending, stored_task
from tests.support.redis_ledger import check
from tests.support.redis_server import EVERY, RedisServer, need
from tests.support.wait import until

LEASE_MS = 500


class Acknowledged:
    """What the store answered to, until it went away."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.added: list[str] = []
        self.finished: list[str] = []

    def add(self, lane: int) -> None:
        for n in range(1_000_000):
            id = f"{lane}-{n}"
            self._ledger.add([NewTask(id, "work", delay_ms=0 if n % 2 else 3_600_000)])
            self.added.append(id)

    def work(self) -> None:
        while True:
            tasks = self._ledger.claim(SHARD, 3, lease_ms=LEASE_MS).tasks
            ends = [ending(task, Ending.DONE, result="1") for task in tasks[:2]]
            answers = self._ledger.settle(SHARD, ends)
            assert set(answers) <= {Settled.DONE}
            self.finished += [end.id for end in ends]


@pytest.fixture(params=EVERY)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with RedisServer(need(request.param), "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


def until_away(work: Callable[[], None]) -> Callable[[], None]:
    def body() -> None:
        with pytest.raises(StoreUnavailable):
            work()

    return body


def test_nothing_acknowledged_is_lost(server: RedisServer) -> None:
    with connect(server.url) as client:
        ledger = Ledger(client)
        acknowledged = Acknowledged(ledger)
        works = [lambda lane=lane: acknowledged.add(lane) for lane in range(3)] + [acknowledged.work]  # type: ignore[misc]
        threads = [threading.Thread(target=until_away(work)) for work in works]
        for thread in threads:
            thread.start()
        until(lambda: len(acknowledged.finished) > 50 and len(acknowledged.added) > 300)
        server.stop(signal.SIGKILL)
        for thread in threads:
            thread.join()
        server.start()
        assert {id for id in acknowledged.added if ledger.get(SHARD.queue, id) is None} == set()
        assert {stored_task(ledger, id).status for id in acknowledged.finished} == {Status.DONE}
        client.delete("duecourse:{default/0}:bell")  # the one key with a time to live; the next verb hangs it again
        assert check(client) >= len(acknowledged.added)
        finish_the_rest(ledger, acknowledged)


@contextmanager
def full_disk(server: RedisServer) -> Iterator[None]:
    """A server whose files may grow no more, as on a disk that is full."""
    pid = server.process.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))
    yield
    if server.process.poll() is None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


def added(ledger: Ledger, id: str, **fields: Any) -> bool:
    try:
        return bool(ledger.add([NewTask(id, "work", **fields)]))
    except StoreUnavailable:
        return False


@pytest.mark.parametrize("version", EVERY)
def test_a_full_disk_rejects_changes_loses_nothing_and_work_goes_on_once_there_is_room(version: str) -> None:
    with (
        RedisServer(need(version), "--appendonly", "yes", "--appendfsync", "everysec") as server,
        connect(server.url) as client,
    ):
        ledger = Ledger(client)
        acknowledged = [f"t-{n}" for n in range(50) if added(ledger, f"t-{n}")]
        [running] = ledger.claim(SHARD, 1, lease_ms=LATER_MS).tasks
        with full_disk(server):
            ids = (f"late-{n}" for n in count())
            while added(ledger, id := next(ids)):  # until the server has met that there is no room
                acknowledged.append(id)
            for change in (
                lambda: ledger.claim(SHARD, 1, lease_ms=LEASE_MS),
                lambda: ledger.settle(SHARD, [ending(running, Ending.DONE)]),
                lambda: ledger.cancel(SHARD.queue, ["t-9"]),
            ):
                with pytest.raises(StoreUnavailable):
                    change()
            assert stored_task(ledger, "t-9").status is Status.SCHEDULED
        until(lambda: added(ledger, "after"))
        assert ledger.settle(SHARD, [ending(running, Ending.DONE)]) == [Settled.DONE]
        assert len(ledger.claim(SHARD, 500, lease_ms=LATER_MS).tasks) == len(
            acknowledged
        )  # the last instead of the first
        until(lambda: client.info("persistence")["aof_pending_bio_fsync"] == 0)
        server.stop(signal.SIGKILL)
        server.start()
        assert {id for id in [*acknowledged, "after"] if ledger.get(SHARD.queue, id) is None} == set()
        check(client)


@pytest.mark.parametrize("version", EVERY)
def test_a_server_that_syncs_always_ends_on_a_full_disk_with_all_that_it_acknowledged(version: str) -> None:
    with (
        RedisServer(need(version), "--appendonly", "yes", "--appendfsync", "always") as server,
        connect(server.url) as client,
    ):
        ledger = Ledger(client)
        acknowledged = [f"t-{n}" for n in range(50) if added(ledger, f"t-{n}")]
        with full_disk(server):
            assert not added(ledger, "lost")
            assert server.process.wait(30) != 0
        server.start()
        assert {id for id in acknowledged if ledger.get(SHARD.queue, id) is None} == set()
        assert added(ledger, "after")
        assert len(ledger.claim(SHARD, 500, lease_ms=LATER_MS).tasks) == len(acknowledged) + 1
        check(client)


def finish_the_rest(ledger: Ledger, acknowledged: Acknowledged) -> None:
    """What was leased lapses, and all that is due is worked after all."""
    worked: list[str] = []
    with engine(ledger, lambda task: worked.append(task.id)) as run:

        def settled() -> bool:
            run.drainer.drain([Shard()], ample)
            stats = ledger.stats(SHARD)
            return stats.leased == 0 and stats.oldest_due_at > stats.now + LATER_MS  # what lapsed twice waits a while

        until(settled)
    assert not set(worked) & set(acknowledged.finished)
    # More may be done than was acknowledged: an answer can be lost whose work is not.
    due = [id for id in acknowledged.added if int(id.split("-")[1]) % 2]
    assert {stored_task(ledger, id).status for id in due} == {Status.DONE}
