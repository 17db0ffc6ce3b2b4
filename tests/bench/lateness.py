"""How long after it is due a task is claimed: through the bridge, with events and without; by lingering ticks."""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import redis

from duecourse.app import App, Parts
from duecourse.base.ids import new_id
from duecourse.base.json_text import Json
from duecourse.bridge import Bridge
from duecourse.ledger.connect import connect
from duecourse.ledger.operation_types import MAX_ADD
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.redis_bells import RedisBells
from duecourse.ledger.task import Done, NewTask, Task
from duecourse.ringing.bridge import LambdaRingHandler
from duecourse.ringing.bridge_event import read_rings, shards_of
from duecourse.ringing.linger import Linger
from duecourse.running.drain import Drainer, Limits
from duecourse.running.run import Kind, Runner
from duecourse.running.threads import Threads
from duecourse.schedules.calendar import Calendar
from duecourse.schedules.firing import Firer
from duecourse.settings import Settings
from tests.bench.figures import HOUR_MS, Figure, in_rounds
from tests.bench.server import BenchServer
from tests.bench.stage import Measured
from tests.support.engine import targets_of
from tests.support.wait import until

PROBES = 1_000
OVER_MS = 5_000
FIRST_MS = 2_000
AIM = "p50 ≤ 2, p99 ≤ 5, never early"
LINGER_AIM = "p99 ≤ 10, never early"
TICK_S, LINGER_S = 2.0, 5.0
"""A minute is two seconds here, so that the hand-over from one tick to the next is measured three times and more. The
three seconds that a tick stays beyond the next one's start are as long as in the template."""
MARGIN_MS = 25_000


def figures(server: BenchServer, pending: int) -> Measured:
    """Tasks due at random instants within five seconds, claimed in the process that serves the rings."""
    with connect(server.url) as client:
        client.flushall()
        add_all([NewTask(new_id(), "report", delay_ms=HOUR_MS + i) for i in range(pending)], Ledger(client))
        yield _measure(f"late, beside {pending:,} pending tasks", server.url, probes_of(["default"]))
        client.flushall()
        _foreign_keys(client, pending)
        yield _measure(f"late, beside {pending:,} foreign volatile keys", server.url, probes_of(["default"]))
        client.flushall()
        shards = [f"queue-{n}" for n in range(1_000)]
        yield _measure("late, 1,000 shards", server.url, probes_of(shards))
        for events in (True, False):
            how = "on" if events else "off"
            client.flushall()
            yield _measure(f"late, bridge, events {how}", server.url, probes_of(["default"]), events=events)
            client.flushall()
            yield _measure_linger(f"late, linger, events {how}", server.url, probes_of(["default"]), events=events)
        client.flushall()
        yield _measure_linger("late, linger, 1,000 shards", server.url, probes_of(shards))


class InProcess:
    """The functions' service in one process: what `on_expired` does, without the way there.

    `late` is of tasks, `occurrences_late` of occurrences of schedules (ms).
    """

    def __init__(self, ledger: Ledger) -> None:
        self.late: list[int] = []
        self.occurrences_late: list[int] = []
        self._threads = Threads(4)
        runner = Runner(lambda _kind: self._note, None, ledger.now, random.Random())
        fire = Firer(ledger, Calendar()).fire
        self._drainer = Drainer(ledger, runner, targets_of({}, self), self._threads, Limits(60_000, 0), fire)

    def invoke(self, function: str, event: Json) -> Json:
        """Drain the shards that rang."""
        assert function == "on_expired"
        shards = shards_of(read_rings(event).bells, "duecourse").shards
        return self._drainer.drain(shards, lambda: 60_000)._asdict()

    def send(self, function: str, event: Json) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    def _note(self, task: Task) -> Done:
        late = self.occurrences_late if "@" in task.id else self.late
        late.append(task.claimed_at - task.due_at)
        return Done()


@contextmanager
def bridged(url: str, *, events: bool = True) -> Iterator[InProcess]:
    """A bridge that is ready, and the service that it invokes."""
    with connect(url) as client:
        service = InProcess(Ledger(client))
        bridge = Bridge(RedisBells(url, "duecourse", events=events), LambdaRingHandler(service, "on_expired"))
        bridge.start()
        assert bridge.wait_ready(30)
        yield service
        bridge.stop()
        service.close()


def _measure(name: str, url: str, probes: Sequence[NewTask], *, events: bool = True) -> list[Figure]:
    with bridged(url, events=events) as service, connect(url) as client:
        add_all(probes, Ledger(client))
        until(lambda: len(service.late) >= len(probes), seconds=120, every=0.1)
    return [Figure(name, "", AIM, in_rounds(service.late))]


def _measure_linger(name: str, url: str, probes: Sequence[NewTask], *, events: bool = True) -> list[Figure]:
    """No bridge: a tick each TICK_S that stays for LINGER_S."""
    late: list[int] = []

    def note(task: Task) -> Done:
        late.append(task.claimed_at - task.due_at)
        return Done()

    with connect(url) as client, _ticking(url, note, events="on" if events else "off"):
        add_all(probes, Ledger(client))
        until(lambda: len(late) >= len(probes), seconds=120, every=0.1)
    return [Figure(name, "", LINGER_AIM, in_rounds(late))]


@contextmanager
def _ticking(url: str, kind: Kind, *, events: str) -> Iterator[None]:
    """Lingering ticks of this process, as the schedule makes them."""
    settings = Settings(store=url, tick_linger_ms=int(LINGER_S * 1_000), events=events)
    app = App(settings, Parts(kinds={"probe": kind}))
    over = threading.Event()
    ticks = [threading.Thread(target=_tick, args=(app,))]
    ticks[0].start()

    def keep() -> None:
        while not over.wait(TICK_S):
            ticks.append(threading.Thread(target=_tick, args=(app,)))
            ticks[-1].start()

    keeper = threading.Thread(target=keep)
    keeper.start()
    yield
    over.set()
    for thread in (keeper, *ticks):
        thread.join()
    app.close()


def _tick(app: App) -> None:
    """What poll_tick does."""
    end = time.monotonic() + LINGER_S + MARGIN_MS / 1000 + 1

    def remaining_ms() -> int:
        return int((end - time.monotonic()) * 1000)

    found = app.sweeper.survey(lambda: 900_000)
    linger = Linger(app, remaining_ms)
    linger.start()
    app.sweeper.tick(found, remaining_ms)
    linger.stay_until_over()
    linger.stop()


def probes_of(queues: Sequence[str]) -> list[NewTask]:
    delays = [FIRST_MS + random.randrange(OVER_MS) for _ in range(PROBES)]
    return [NewTask(new_id(), "probe", queue=queues[i % len(queues)], delay_ms=delay) for i, delay in enumerate(delays)]


def add_all(tasks: Sequence[NewTask], ledger: Ledger) -> None:
    for start in range(0, len(tasks), MAX_ADD):
        ledger.add(tasks[start : start + MAX_ADD])


def _foreign_keys(client: redis.Redis, count: int) -> None:
    for start in range(0, count, 1_000):
        pipe = client.pipeline(transaction=False)
        for n in range(start, min(start + 1_000, count)):
            pipe.set(f"session:{n}", "x", px=HOUR_MS + n)
        pipe.execute()
