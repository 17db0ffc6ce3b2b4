"""Whatever happens to a tenant's tasks, what is counted of them is what is there; no quota loses a task."""

from collections.abc import Callable
from random import Random

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.keys import keys_of
from duecourse.ledger.layout import INSIDE
from duecourse.ledger.operation_types import Delivery, Move
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending, OnDuplicate, RetryPolicy, Task
from tests.support import redis_ledger
from tests.support.clock import HandClock
from tests.support.ledger import SHARD, ending, new
from tests.support.matrix import LENGTHY, in_turn, some

pytestmark = [LENGTHY, pytest.mark.slow]

IDS = ["a", "b", "c", "d"]
PAYLOADS = ["7", '"small"', f'"{"x" * INSIDE}"', f'"{"x" * (INSIDE + 500)}"']
STEPS = 60
DELIVERED = {"handed": Delivery("lambda:work", 100, 50)}


class Walk:
    """One tenant's tasks, and what callers, workers and ticks may do to them, by chance."""

    def __init__(self, ledger: Ledger, clock: HandClock, chance: Random) -> None:
        self.ledger, self.clock, self.chance = ledger, clock, chance
        self.leased: list[Task] = []
        self.steps: list[Callable[[], object]] = [
            self.add, self.add, self.add, self.claim, self.claim, self.settle, self.settle,
            self.cancel, self.move, self.replay, self.sweep, self.limit, self.wait,
        ]  # fmt: skip

    def add(self) -> object:
        pick = self.chance.choice
        return self.ledger.add([
            new(
                id, kind=pick(["work", "handed"]), tenant="acme", payload=pick(PAYLOADS), group=pick(["", "g"]),
                delay_ms=pick([0, 0, 40]), deadline_ms=pick([None, 60]), on_duplicate=pick([*OnDuplicate]),
                retry=RetryPolicy(2, 10, 1.0, 10), notify=pick(["", "http://a.example/"]),
            )
            for id in self.chance.sample(IDS, 2)
        ])  # fmt: skip

    def claim(self) -> None:
        self.leased += self.ledger.claim(SHARD, 3, lease_ms=30, deliveries=self.chance.choice([DELIVERED, {}])).tasks

    def settle(self) -> None:
        ends = [Ending.DONE, Ending.AGAIN, Ending.RETRY, Ending.DROP, Ending.RELEASE]
        for task in self.leased[:2]:
            self.ledger.settle(SHARD, [ending(task, self.chance.choice(ends), result=self.chance.choice(["", '"x"']))])
        self.leased = self.leased[2:]

    def cancel(self) -> object:
        return self.ledger.cancel("default", IDS[:2], tenant="acme", force=self.chance.random() < 0.5)

    def move(self) -> object:
        moves = [Move(id, delay_ms=20, force=self.chance.random() < 0.5, revive=True) for id in IDS[1:3]]
        return self.ledger.move("default", moves, "acme")

    def replay(self) -> object:
        return self.ledger.replay("default", IDS, "acme")

    def sweep(self) -> object:
        return self.ledger.sweep(SHARD, retention_ms=self.chance.choice([0, 50]), dead_retention_ms=100)

    def limit(self) -> None:
        bytes_, pending = self.chance.choice([(None, None), (9_000, 50), (4_000, 3)])
        self.ledger.configure("default", {"tenant_max_bytes": bytes_, "tenant_max_pending": pending})

    def wait(self) -> None:
        self.clock.advance(self.chance.choice([1, 20, 60]))


def walk(ledger: Ledger, clock: HandClock, chance: Random) -> None:
    walked = Walk(ledger, clock, chance)
    ledger.configure("default", {"tenant_max_bytes": 9_000})
    for _ in range(STEPS):
        chance.choice(walked.steps)()
        redis_ledger.check(ledger._client)
    ledger.configure("default", {"tenant_max_bytes": 1_000_000})
    while ledger.sweep(SHARD, retention_ms=1_000_000).more:
        pass
    redis_ledger.check(ledger._client)
    tasks = [task for id in IDS if (task := ledger.get("default", id, "acme"))]
    counted = int(ledger._client.hget(keys_of("duecourse", SHARD).meta, "bytes:acme") or 0)
    waiting = int(ledger._client.hget(keys_of("duecourse", SHARD).meta, "successors") or 0)
    shown = sum(len(task.payload_json) + len(task.result_json) for task in tasks)
    assert counted == shown if not waiting else counted > shown


@pytest.mark.parametrize("examples", in_turn(30, 150))
def test_what_is_counted_is_what_is_there(examples: int) -> None:
    @given(chance=st.randoms(use_true_random=False))
    @settings(max_examples=examples, deadline=None)
    def check(chance: Random) -> None:
        clock = HandClock()
        walk(EmbeddedLedger(clock, deaths=True), clock, chance)

    check()


@pytest.mark.parametrize("seed", some(range(10), 4))
def test_the_same_on_a_redis(redis_client: redis.Redis, seed: int) -> None:
    clock = HandClock()
    walk(Ledger(redis_client, travel=clock, deaths=True), clock, Random(seed))
