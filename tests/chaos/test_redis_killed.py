"""What was acknowledged is still there when Redis has been killed outright and started again."""

import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from duecourse.adapters.redis.connect import connect
from duecourse.adapters.redis.store import RedisStore
from duecourse.domain.outcomes import Ending
from duecourse.domain.task import NewTask, Shard, Status
from duecourse.errors import StoreUnavailable
from duecourse.ports.leases import Settled
from tests.support.engine import ample, engine
from tests.support.ledger import LATER_MS, SHARD, ending, standing
from tests.support.redis_ledger import check
from tests.support.redis_server import EVERY, RedisServer, need
from tests.support.wait import until

LEASE_MS = 500


class Acknowledged:
    """What the store answered to, until it went away."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self.added: list[str] = []
        self.finished: list[str] = []

    def add(self, lane: int) -> None:
        for n in range(1_000_000):
            id = f"{lane}-{n}"
            self._store.add([NewTask(id, "work", delay_ms=0 if n % 2 else 3_600_000)])
            self.added.append(id)

    def work(self) -> None:
        while True:
            tasks = self._store.claim(SHARD, 3, lease_ms=LEASE_MS).tasks
            ends = [ending(task, Ending.DONE, result="1") for task in tasks[:2]]
            answers = self._store.settle(SHARD, ends)
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
        store = RedisStore(client)
        acknowledged = Acknowledged(store)
        works = [lambda lane=lane: acknowledged.add(lane) for lane in range(3)] + [acknowledged.work]  # type: ignore[misc]
        threads = [threading.Thread(target=until_away(work)) for work in works]
        for thread in threads:
            thread.start()
        until(lambda: len(acknowledged.finished) > 50 and len(acknowledged.added) > 300)
        server.stop(signal.SIGKILL)
        for thread in threads:
            thread.join()
        server.start()
        assert {id for id in acknowledged.added if store.get(SHARD.queue, id) is None} == set()
        assert {standing(store, id).status for id in acknowledged.finished} == {Status.DONE}
        client.delete("duecourse:{default/0}:bell")  # the one key with a time to live; the next verb hangs it again
        assert check(client) >= len(acknowledged.added)
        finish_the_rest(store, acknowledged)


def finish_the_rest(store: RedisStore, acknowledged: Acknowledged) -> None:
    """What was leased lapses, and all that is due is worked after all."""
    worked: list[str] = []
    with engine(store, lambda task: worked.append(task.id)) as run:

        def settled() -> bool:
            run.drainer.drain([Shard()], ample)
            stats = store.stats(SHARD)
            return stats.leased == 0 and stats.oldest_due_at > stats.now + LATER_MS  # what lapsed twice waits a while

        until(settled)
    assert not set(worked) & set(acknowledged.finished)
    # More may be done than was acknowledged: an answer can be lost whose work is not.
    due = [id for id in acknowledged.added if int(id.split("-")[1]) % 2]
    assert {standing(store, id).status for id in due} == {Status.DONE}
