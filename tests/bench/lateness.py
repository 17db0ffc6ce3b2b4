"""How long after it is due a task is claimed, through the real bridge."""

import random
from collections.abc import Iterator, Sequence

import redis

from duecourse.adapters.redis_bells import RedisBells
from duecourse.adapters.redis_scripts import connect
from duecourse.adapters.redis_store import RedisStore
from duecourse.bridge import Bridge
from duecourse.domain.outcomes import Done
from duecourse.domain.task import Json, NewTask, Task, new_id
from duecourse.engine.crew import Crew
from duecourse.engine.drain import Drainer, Limits
from duecourse.engine.run import Runner
from duecourse.engine.targets import Targets
from duecourse.ports.store import MAX_ADD
from duecourse.wire.rings import Rings
from tests.bench.figures import Figure, lateness
from tests.bench.server import BenchServer
from tests.support.wait import until

PROBES = 2_000
OVER_MS = 20_000
FIRST_MS = 2_000
AIM = "p50 ≤ 2, p99 ≤ 5, never early"
HOUR_MS = 3_600_000


def figures(server: BenchServer, pending: int) -> Iterator[Figure]:
    """2,000 tasks due at random instants within 20 s, claimed in the bridge's own process, in three surroundings."""
    with connect(server.url) as client:
        client.flushall()
        _add([NewTask(new_id(), "report", delay_ms=HOUR_MS + i) for i in range(pending)], RedisStore(client))
        yield _measure(f"late, beside {pending:,} pending tasks", server.url, _probes(["default"]))
        client.flushall()
        _foreign_keys(client, pending)
        yield _measure(f"late, beside {pending:,} foreign volatile keys", server.url, _probes(["default"]))
        client.flushall()
        yield _measure("late, 1,000 shards", server.url, _probes([f"queue-{n}" for n in range(1_000)]))


class InProcess:
    """The functions' service in one process: what `on_expired` does, without the way there."""

    def __init__(self, store: RedisStore) -> None:
        self.late: list[int] = []
        self._crew = Crew(4)
        runner = Runner(lambda _kind: self._note, None, store.now, random.Random())
        self._drainer = Drainer(store, runner, Targets({}, self), self._crew, Limits(60_000, 0))

    def invoke(self, function: str, event: Json) -> Json:
        """Drain the shards that rang."""
        assert function == "on_expired"
        shards = Rings.model_validate(event).heard("duecourse").shards
        return self._drainer.drain(shards, lambda: 60_000)._asdict()

    def send(self, function: str, event: Json) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """End the threads."""
        self._crew.close()

    def _note(self, task: Task) -> Done:
        self.late.append(task.claimed_at - task.due_at)
        return Done()


def _measure(name: str, url: str, probes: Sequence[NewTask]) -> Figure:
    with connect(url) as client:
        service = InProcess(RedisStore(client))
        bridge = Bridge(RedisBells.from_url(url, "duecourse"), service, function="on_expired")
        bridge.start()
        assert bridge.wait_ready(30)
        _add(probes, RedisStore(client))
        until(lambda: len(service.late) >= len(probes), seconds=120, every=0.1)
        bridge.stop()
        service.close()
    return Figure(name, lateness(service.late), AIM)


def _probes(queues: Sequence[str]) -> list[NewTask]:
    delays = [FIRST_MS + random.randrange(OVER_MS) for _ in range(PROBES)]
    return [NewTask(new_id(), "probe", queue=queues[i % len(queues)], delay_ms=delay) for i, delay in enumerate(delays)]


def _add(tasks: Sequence[NewTask], store: RedisStore) -> None:
    for start in range(0, len(tasks), MAX_ADD):
        store.add(tasks[start : start + MAX_ADD])


def _foreign_keys(client: redis.Redis, count: int) -> None:
    for start in range(0, count, 1_000):
        pipe = client.pipeline(transaction=False)
        for n in range(start, min(start + 1_000, count)):
            pipe.set(f"session:{n}", "x", px=HOUR_MS + n)
        pipe.execute()
