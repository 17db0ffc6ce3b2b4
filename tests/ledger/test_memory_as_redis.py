"""The same random steps on memory and on Redis: what the ledger's model leaves out, by the bytes that records end in.

Follow-ups, tenants with odd names, takes, settles that come with everything or nothing, and texts that look like the
blocks behind a record. What is read must be the same but for the numbers that each store draws.
"""

import random
import re
from dataclasses import replace

import pytest
import redis

from duecourse.base.json_text import dump_json
from duecourse.ledger import script_codec as redis_wire
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.many_tasks import TaskFilter
from duecourse.ledger.operation_types import Delivery, Lease, Move
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import POLICY, Ending, OnDuplicate, RetryPolicy, Run, Settlement, Task
from tests.support import redis_ledger
from tests.support.clock import HandClock
from tests.support.ledger import SHARD, lease_of, new
from tests.support.matrix import some

QUEUE = SHARD.queue
STEPS = 80
IDS = "abc"
TENANTS = ["-", "due:x", "a:tasks", "x{y}", "é b"]
TEXTS = [dump_json(text) for text in ("", "L", "D", "s", "\0" * 10 + "D", "x" * 25 + "L", "é" * 200)]
TARGETS = {"report": "lambda:L", "s": f"lambda:{'x' * 120}V"}
LONGEST = dump_json("r" * 65_000 + "D")
NUMBER = re.compile(r"~\d+\.|\"generation\":\d+")


def shape(task: Task) -> Task:
    """All of a task that is the same in every store."""
    log = tuple(replace(entry, fence=min(1, entry.fence)) if isinstance(entry, Run) else entry for entry in task.log)
    payload = NUMBER.sub("", dump_json(task.payload)) if "~" in task.id else task.payload_json
    changes = {"payload_json": payload, "generation": 0, "token": str(min(1, task.fence)), "log": log}
    changes["delivery"] = task.delivery[:1]
    return replace(task, id=NUMBER.sub("~", task.id), **changes)


def swept(ledger: Ledger) -> tuple[int, int, int]:
    """How many were reclaimed, died and were pruned, in as many steps as it takes."""
    step = ledger.sweep(SHARD, retention_ms=200)
    more = swept(ledger) if step.more else (0, 0, 0)
    return step.reclaimed + more[0], step.died + more[1], step.pruned + more[2]


def by_shape(tasks: list[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: repr(shape(task)))


class Alike:
    """Two stores that are asked the same, and the leases that each gave."""

    def __init__(self, ledgers: list[Ledger], clock: HandClock, seed: int) -> None:
        self.ledgers, self.clock, self.draw = ledgers, clock, random.Random(seed)
        self.leases: list[list[Task]] = []

    def add(self) -> None:
        fields = {
            "kind": self.draw.choice(["work", *TARGETS]),
            "payload": self.draw.choice(TEXTS),
            "state": self.draw.choice(["", *TEXTS]),
            "group": self.draw.choice(["", "g", "L"]),
            "delay_ms": self.draw.choice([0, 0, 5, 200]),
            "deadline_ms": self.draw.choice([None, None, 5, 200]),
            "retry": RetryPolicy(max_attempts=self.draw.choice([1, 2, 9]), backoff_ms=20, jitter=False),
            "on_duplicate": self.draw.choice(list(OnDuplicate)),
            "by": self.draw.choice(["", "D", "ü"]),
            "notify": self.draw.choice(["", "", "L", "http://a.example/D"]),
        }
        tasks = [new(self.draw.choice(IDS), tenant=self.draw.choice(TENANTS), **fields) for _ in range(2)]
        answers = [ledger.add(tasks, echo=True) for ledger in self.ledgers]
        shown = [[(one.reply, one.task and shape(one.task)) for one in added] for added in answers]
        assert shown[0] == shown[1]

    def claim(self) -> None:
        lease_ms, most = self.draw.choice([1, 50, 5_000]), 100  # else turns decide who has the room
        handing = {kind: Delivery(target, most, 2 * lease_ms) for kind, target in TARGETS.items()}
        bounds = {"lease_ms": lease_ms, "deliveries": self.draw.choice([{}, handing])}
        self._lease(*(by_shape(ledger.claim(SHARD, 500, **bounds).tasks) for ledger in self.ledgers))

    def begin(self) -> None:
        for held in self.draw.choices(self.leases[-12:], k=2) if self.leases else []:
            if held[0].kind in TARGETS:
                nonce = self.draw.randbytes(8)
                both = list(zip(self.ledgers, held, strict=True))
                for _ in range(self.draw.choice([1, 2])):
                    answers = [ledger.begin(SHARD, [lease_of(task)], 60, [nonce])[0] for ledger, task in both]
                    assert len({(one.run, one.expires_at, one.token[12:]) for one in answers}) == 1
                if answers[0].token:
                    begun = zip(held, answers, strict=True)
                    self.leases.append([replace(task, token=one.token, target="") for task, one in begun])

    def take(self) -> None:
        id, tenant = self.draw.choice(IDS), self.draw.choice(TENANTS)
        taken = [ledger.take(QUEUE, id, tenant, lease_ms=50) for ledger in self.ledgers]
        self._lease(*([task] if task else [] for task in taken))

    def settle(self) -> None:
        asked: list[list[Settlement]] = [[], []]
        for held in self.draw.choices(self.leases[-12:], k=3) if self.leases else []:
            cut = self.draw.choice([28, 28, 28, 28, 28, 12, 0])
            ending = self.draw.choice([Ending.DONE, Ending.DONE, *Ending])
            result = self.draw.choice(["", *TEXTS, LONGEST])
            state, detail = self.draw.choice([None, *TEXTS]), self.draw.choice(["", "D", "é" * 250])
            for ends, task in zip(asked, held, strict=True):
                token = task.token[:cut].ljust(28, "0")
                ends.append(Settlement(task.id, task.tenant, token, ending, 5, None, state, detail, result))
        for _ in range(self.draw.choice([1, 2])):
            first, second = (ledger.settle(SHARD, ends) for ledger, ends in zip(self.ledgers, asked, strict=True))
            assert first == second

    def keep(self) -> None:
        for held in self.draw.choices(self.leases[-6:], k=1) if self.leases else []:
            leases = [Lease(task.id, task.token, task.tenant) for task in held]
            state, both = self.draw.choice(TEXTS), list(zip(self.ledgers, leases, strict=True))
            assert len({ledger.save(SHARD, lease, state) for ledger, lease in both}) == 1
            assert len({ledger.extend(SHARD, [lease], 70)[0] for ledger, lease in both}) == 1

    def change(self) -> None:
        tenant, id, force = self.draw.choice(TENANTS), self.draw.choice(IDS), self.draw.random() < 0.5
        move = Move(id, None, self.draw.choice([0, 9]), self.draw.choice([None, *TEXTS]), force, True, "L")
        verb = self.draw.choice(["move", "cancel", "replay"])
        for_each = {
            "move": lambda ledger: ledger.move(QUEUE, [move], tenant),
            "cancel": lambda ledger: ledger.cancel(QUEUE, [id], force=force, tenant=tenant, by="D"),
            "replay": lambda ledger: ledger.replay(QUEUE, [id], tenant, deadlines_ms=[5], by="s"),
        }
        first, second = map(for_each[verb], self.ledgers)
        assert first == second

    def wait(self) -> None:
        self.clock.advance(self.draw.choice([1, 9, 50, 300]))
        first, second = map(swept, self.ledgers)
        assert first == second

    def compare(self) -> None:
        for tenant in TENANTS:
            pages = [ledger.page(QUEUE, TaskFilter(), None, 100, tenant).tasks for ledger in self.ledgers]
            first, second = ([shape(task) for task in by_shape(page)] for page in pages)
            assert first == second

    def _lease(self, *leased: list[Task]) -> None:
        first, second = ([shape(task) for task in tasks] for tasks in leased)
        assert first == second
        self.leases += [list(pair) for pair in zip(*leased, strict=True)]


@pytest.mark.parametrize("seed", some(range(12)))
def test_memory_and_redis_show_the_same_after_the_same_steps(
    redis_client: redis.Redis, clock: HandClock, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The random part of a wait is drawn from a token, which is another in each.
    monkeypatch.setattr(redis_wire, "POLICY", replace(POLICY, jitter=False))
    ledgers: list[Ledger] = [EmbeddedLedger(clock, deaths=True), Ledger(redis_client, travel=clock, deaths=True)]
    alike = Alike(ledgers, clock, seed)
    steps = [alike.add, alike.claim, alike.take, alike.settle, alike.keep, alike.change, alike.wait, alike.begin]
    for _ in range(STEPS):
        [step] = alike.draw.choices(steps, [4, 5, 2, 7, 1, 4, 3, 4])
        step()
        alike.compare()
    redis_ledger.check(redis_client)
