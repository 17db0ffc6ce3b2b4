"""What one script does is bounded in bytes and entries, for Redis serves nobody meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest
import redis

from duecourse.ledger.keys import keys_of
from duecourse.ledger.many_tasks import Deaths, TaskFilter
from duecourse.ledger.operation_types import MAX_CLAIM, Move, Reply, Settled, UniqueCondition
from duecourse.ledger.operations.base import ScriptRunner
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.operations.tasks import MEMBERS
from duecourse.ledger.queue import Rate
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, NewTask, OnDuplicate, Task
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, ending, lease_of, new
from tests.support.redis_monitor import records_read
from tests.support.redis_server import RedisServer

SIZE = 62 * 1024
COUNT = 120
IDS = [f"t{n:03}" for n in range(COUNT)]
MOST = 2_000_000
"""The bytes of records after which a script stops."""
PIECE = 32
"""The most records that it reads at a time: what it may read beyond that."""


class Scene:
    """A ledger with COUNT tasks, each with a saved state of SIZE in its record, nearly 8 MB together."""

    def __init__(self, client: redis.Redis, clock: HandClock) -> None:
        self.clock = clock
        self.ledger = Ledger(client, travel=clock)
        self.claimed: list[Task] = []

    def add(self, **fields: Any) -> None:
        self.ledger.add([self._new(id, **fields) for id in IDS])

    def replace(self) -> list[Reply]:
        over = [new(id, on_duplicate=OnDuplicate.REPLACE) for id in IDS]
        return [one.reply for one in self.ledger.add(over)]

    def claim(self) -> list[Task]:
        """Claim all, several claims at need."""
        while len(self.claimed) < COUNT and (tasks := self.ledger.claim(SHARD, MAX_CLAIM, lease_ms=LEASE_MS).tasks):
            self.claimed += tasks
        return self.claimed

    def end(self, how: Ending) -> list[Settled]:
        return self.ledger.settle(SHARD, [ending(task, how) for task in self.claimed])

    def _new(self, id: str, **fields: Any) -> NewTask:
        return new(id, state=f'"{"x" * SIZE}"', **fields)


def scheduled(scene: Scene) -> None:
    scene.add()


def with_payloads_apart(scene: Scene) -> None:
    scene.add(payload=f'"{"x" * SIZE}"', group="g")


def leased(scene: Scene) -> None:
    scene.add()
    scene.claim()


def lapsed(scene: Scene) -> None:
    leased(scene)
    scene.claimed.clear()
    scene.clock.advance(LEASE_MS)


def past_deadline(scene: Scene) -> None:
    scene.add(deadline_ms=1)
    scene.clock.advance(1)


def dead(scene: Scene) -> None:
    leased(scene)
    scene.end(Ending.DROP)


def done(scene: Scene) -> None:
    leased(scene)
    scene.end(Ending.DONE)
    scene.clock.advance(LATER_MS)


def swept(scene: Scene) -> int:
    found = 0
    while (step := scene.ledger.sweep(SHARD, retention_ms=1)).more:
        found += step.reclaimed + step.pruned
    return found + step.reclaimed + step.pruned


def died(scene: Scene) -> int:
    found = 0
    while (claim := scene.ledger.claim(SHARD, MAX_CLAIM, lease_ms=LEASE_MS)).died:
        assert not claim.tasks
        found += claim.died
    return found


def paged(scene: Scene) -> int:
    page = scene.ledger.page("default", TaskFilter(), None, 100)
    found = len(page.tasks)
    while page.next:
        page = scene.ledger.page("default", TaskFilter(), page.next, 100)
        found += len(page.tasks)
    return found


def seen_dead(scene: Scene) -> int:
    page = scene.ledger.deaths("default", Deaths())
    found = len(page.deaths)
    while page.next:
        page = scene.ledger.deaths("default", Deaths(), page.next)
        found += len(page.deaths)
    return found


VERBS: dict[str, tuple[Callable[[Scene], None], Callable[[Scene], object], object]] = {
    "add": (scheduled, lambda s: s.replace(), [Reply.REPLACED] * COUNT),
    "claim": (scheduled, lambda s: len(s.claim()), COUNT),
    "claim of what is past its deadline": (past_deadline, died, COUNT),
    "claim after leases that lapsed": (lapsed, lambda s: len(s.claim()), COUNT),
    "extend": (
        leased,
        lambda s: s.ledger.extend(SHARD, [lease_of(task) for task in s.claimed], LEASE_MS),
        [HandClock().at + LEASE_MS] * COUNT,
    ),
    "settle": (leased, lambda s: s.end(Ending.DONE), [Settled.DONE] * COUNT),
    "settle of failures": (leased, lambda s: s.end(Ending.DROP), [Settled.DEAD] * COUNT),
    "move": (scheduled, lambda s: s.ledger.move("default", [Move(id, delay_ms=1) for id in IDS]), [Reply.OK] * COUNT),
    "cancel": (scheduled, lambda s: s.ledger.cancel("default", IDS), [Reply.OK] * COUNT),
    "replay": (dead, lambda s: s.ledger.replay("default", IDS), [Reply.OK] * COUNT),
    "sweep of leases that lapsed": (lapsed, swept, COUNT),
    "sweep of what was done": (done, swept, COUNT),
    "page": (scheduled, paged, COUNT),
    "dead": (dead, seen_dead, COUNT),
    "show": (with_payloads_apart, lambda s: len(s.ledger.group("default", "g")), COUNT),
}


@pytest.mark.parametrize("verb", VERBS)
def test_no_script_reads_more_than_its_bytes(
    redis_server: RedisServer, redis_client: redis.Redis, clock: HandClock, verb: str
) -> None:
    prepare, act, expected = VERBS[verb]
    scene = Scene(redis_client, clock)
    prepare(scene)
    with records_read(redis_server) as reads:
        answer = act(scene)
    assert answer == expected
    assert sum(reads) >= COUNT
    assert max(reads) * SIZE <= MOST + PIECE * SIZE


@pytest.mark.parametrize(
    "act",
    [
        lambda ledger: ledger.move("default", [Move(id, delay_ms=1) for id in IDS], group="g"),
        lambda ledger: ledger.cancel("default", IDS, group="g"),
    ],
    ids=["move", "cancel"],
)
def test_tasks_of_a_group_change_in_one_step_whatever_they_weigh(
    redis_server: RedisServer, redis_client: redis.Redis, clock: HandClock, act: Callable[[Ledger], list[Reply]]
) -> None:
    scene = Scene(redis_client, clock)
    scene.add(group="g")
    with records_read(redis_server) as reads:
        assert act(scene.ledger) == [Reply.OK] * COUNT
    assert reads[-1] == COUNT


def test_a_group_is_added_in_one_step_whatever_stands_in_its_place(
    redis_server: RedisServer, redis_client: redis.Redis, clock: HandClock
) -> None:
    scene = Scene(redis_client, clock)
    scene.add(group="g")
    scene.claim()
    scene.end(Ending.DONE)
    with records_read(redis_server) as reads:
        added = scene.ledger.add(
            [new(id, group="g") for id in IDS], unique=UniqueCondition("g", scene.claimed[-1].generation)
        )
    assert [one.reply for one in added] == [Reply.CREATED] * COUNT
    assert len(reads) == 1


def test_one_add_brings_no_more_than_its_bytes(
    redis_server: RedisServer, redis_client: redis.Redis, clock: HandClock
) -> None:
    with records_read(redis_server) as reads:
        Scene(redis_client, clock).add()
    assert max(reads) * SIZE <= MOST


def test_the_log_of_a_rate_grows_with_its_window_and_not_with_what_is_claimed(
    redis_client: redis.Redis, clock: HandClock
) -> None:
    ledger = Ledger(redis_client, travel=clock)
    ledger.configure("default", {"rate": Rate(100_000, 100_000)})
    for _ in range(3):
        ledger.add([new(f"t{clock.at}-{n}") for n in range(200)])
        for _ in range(200):
            clock.advance(1)
            assert len(ledger.claim(SHARD, 1, lease_ms=LEASE_MS).tasks) == 1
    [log] = [key for key in redis_client.scan_iter() if key.endswith(b":log")]
    assert redis_client.zcard(log) <= 600 / 100 + 1
    clock.advance(100_000)
    ledger.add([new("last")])
    assert len(ledger.claim(SHARD, 1, lease_ms=LEASE_MS).tasks) == 1
    assert redis_client.zcard(log) == 1


def test_a_rates_log_of_an_older_version_is_forgotten_in_bounded_steps(
    redis_client: redis.Redis, clock: HandClock
) -> None:
    ledger = Ledger(redis_client, travel=clock)
    ledger.configure("default", {"rate": Rate(100_000, 1_000)})
    ledger.add([new("a"), new("b")])
    keys = keys_of("duecourse", SHARD)
    redis_client.zadd(keys.log, {f"old-{n}:1": clock.at for n in range(9_000)})
    redis_client.hset(keys.meta, "logged", 9_000)
    clock.advance(1_000)
    assert len(ledger.claim(SHARD, 1, lease_ms=LEASE_MS).tasks) == 1
    assert redis_client.zcard(keys.log) == 7_000 + 1


def test_a_group_of_any_size_is_paged_without_reading_any_other_task(
    redis_server: RedisServer, redis_client: redis.Redis, clock: HandClock
) -> None:
    ledger, ids = Ledger(redis_client, travel=clock), [f"t{n:04}" for n in range(MEMBERS + 200)]
    for first in range(0, 1_200, 1_000):
        ledger.add([new(f"other{first + n}", delay_ms=1) for n in range(1_000)])
    for first in range(0, len(ids), 1_000):
        ledger.add([new(id, group="g", delay_ms=9_999 - int(id[1:])) for id in ids[first : first + 1_000]])
    with records_read(redis_server) as reads:
        page = ledger.page("default", TaskFilter(group="g"), None, 100)
        rest = ledger.page("default", TaskFilter(group="g"), page.next, 100)
    assert [task.id for task in page.tasks + rest.tasks] == ids[:-201:-1]
    assert sum(reads) <= 2 * (100 + PIECE)


def test_a_task_of_a_group_that_moved_since_its_place_was_read_is_left_to_a_later_page(
    redis_client: redis.Redis, clock: HandClock
) -> None:
    Ledger(redis_client, travel=clock).add([new(id, group="g", due_at=clock.at + 5) for id in "ab"])
    verbs = ScriptRunner(redis_client, "duecourse", Sharding(), clock)
    named = ("-/a", clock.at + 5, "-/b", clock.at + 4, "-/c", clock.at + 5)
    answer = verbs.run("page", SHARD, ["-"], ("due", 0, "", "", "", "g", "", 0, 100, *named))
    assert answer[2][::4] == [b"-/a"]


def test_every_task_of_a_large_group_is_on_one_page(redis_client: redis.Redis, clock: HandClock) -> None:
    ledger = Ledger(redis_client, travel=clock)
    for first in range(0, 1_200, 400):
        ledger.add([new(f"t{first + n}", group="g", delay_ms=1) for n in range(400)])
    seen, after = [], None
    while True:
        page = ledger.page("default", TaskFilter(group="g"), after, 100)
        seen += [task.id for task in page.tasks]
        if not (after := page.next):
            break
    assert sorted(seen) == sorted(f"t{n}" for n in range(1_200))


def test_claims_of_a_thousandth_of_a_rates_window_leave_it_when_the_newest_does(
    redis_client: redis.Redis, clock: HandClock
) -> None:
    ledger = Ledger(redis_client, travel=clock)
    ledger.configure("default", {"rate": Rate(2, 1_000_000)})
    clock.at -= clock.at % 1_000
    ledger.add([new(f"t{n}") for n in range(4)])
    ledger.claim(SHARD, 1, lease_ms=LEASE_MS)
    clock.advance(400)
    ledger.claim(SHARD, 1, lease_ms=LEASE_MS)
    first, second = clock.at - 400 + 1_000_000, clock.at + 1_000_000
    clock.at = first
    assert ledger.claim(SHARD, 3, lease_ms=LEASE_MS).tasks == []
    clock.at = second
    assert len(ledger.claim(SHARD, 3, lease_ms=LEASE_MS).tasks) == 2
