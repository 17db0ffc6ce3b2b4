"""A schedule fires by its bell alone: no tick, no sweep, and as late as any task."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

from duecourse.base.json_text import Json
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.schedule import Every, Progress, Rule
from duecourse.ringing.bridge_event import read_rings, shards_of
from tests.ringing.test_bridge_on_time import ON_TIME_MS
from tests.support.bridges import NAMESPACE, bridging
from tests.support.firing import CALENDAR, Working, working
from tests.support.ledger import SHARD
from tests.support.redis_server import RedisServer
from tests.support.schedules import series
from tests.support.stalls import on_time_ms
from tests.support.wait import until

pytestmark = pytest.mark.slow

TIMES = 5


class Draining:
    """An invoker whose function drains the shards that rang."""

    def __init__(self, work: Working) -> None:
        self._work = work

    def invoke(self, function: str, event: Json) -> Json:
        """What `on_expired` does."""
        assert function == "on_expired"
        shards = shards_of(read_rings(event).bells, NAMESPACE).shards
        return self._work.drainer.drain(shards, lambda: 60_000)._asdict()

    def send(self, function: str, event: Json) -> None:
        raise AssertionError((function, event))


@contextmanager
def serving(server: RedisServer, client: redis.Redis, *, events: bool) -> Iterator[tuple[Ledger, Working]]:
    """A bridge whose rings are served by a drainer of this process."""
    ledger = Ledger(client, NAMESPACE)
    with working(ledger) as work, bridging(server, Draining(work), events=events):
        yield ledger, work


def test_the_bell_hangs_at_a_schedules_time_and_its_ring_fires_it_without_a_tick(
    server: RedisServer,
) -> None:
    for events in (True, False):
        with (
            server.client() as client,
            serving(server, client, events=events) as (ledger, work),
            on_time_ms(ON_TIME_MS) as most_ms,
        ):
            first = ledger.now() + 700
            rule = Rule(Every(200), first, until=first + (TIMES - 1) * 200)
            schedule = series(f"s-{events}", rule=rule)
            ledger.put_schedule(schedule, Progress(nominal=first, next_at=first, zones=CALENDAR.version))
            assert ledger.stats(SHARD).bell_at == first
            until(lambda: len(work.ran) == TIMES)
            nominals = [first + n * 200 for n in range(TIMES)]
            tasks = [ledger.get("default", schedule.occurrence(at, at).id) for at in nominals]
            late = [task.claimed_at - at for task, at in zip(tasks, nominals, strict=True) if task]
            assert len(late) == TIMES
            assert 0 <= min(late) <= max(late) < most_ms()
            until(lambda: ledger.stats(SHARD).bell_at == 0)  # the last is settled a moment after it ran
