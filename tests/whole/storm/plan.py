"""What a storm asks and what fails, drawn from a seed: the same seed is the same sequence."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

QUEUES = ("default", "wide", "narrow", "gate")
"""One of a shard, one of several, one with `max_running`, one that is paused and resumed."""
LANES = 8
"""Clients; the steps of one id are all of one client."""
PYTHON_LANES = 5
HTTP_LANES = frozenset(range(PYTHON_LANES, LANES))
"""The clients that ask by HTTP; the others write to the ledger by `duecourse.Client`."""


BATCH_LANES, BATCH = frozenset({3, 7}), 8
"""The clients that add many tasks at once, and how many."""


class Stage(StrEnum):
    """The servers of a storm."""

    ALONE = "alone"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Step:
    """What one client asks, `at` seconds after the beginning: a verb, whom it is about, and its fields."""

    at: float
    lane: int
    verb: str
    id: str
    queue: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fault:
    """A part that fails `at` seconds after the beginning, for `seconds`; `which` picks one of several."""

    at: float
    name: str
    seconds: float
    which: int

    @property
    def ends(self) -> float:
        """When it is over, in seconds after the beginning."""
        return self.at + self.seconds


@dataclass(frozen=True, slots=True)
class Size:
    """How much a storm asks."""

    tasks: int
    schedules: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A storm on one stage."""

    seed: int
    stage: Stage
    size: Size
    steps: tuple[Step, ...]
    faults: tuple[Fault, ...]
    kinds: dict[str, str]
    """The kind of each task, by `queue/id`."""


WORKER_KINDS = {"w.quick": 30, "w.slow": 6, "w.flaky": 6, "w.loop": 4}
FUNCTION_KINDS = {"f.quick": 16, "f.slow": 4, "f.flaky": 4}
CALLS = {"webhook": 12, "poll": 4}
SENT = {"to-sqs": 4, "to-rabbit": 4}
STORIES = {"plain": 70, "replaced": 8, "moved": 8, "cancelled": 7, "anew": 7}
KILLERS = 2
"""Tasks that kill the process of their handler, each time."""

FAULTS: dict[Stage, dict[str, tuple[float, float]]] = {
    Stage.ALONE: {
        "redis-killed": (0.5, 2.0),
        "redis-frozen": (2.0, 6.0),
        "redis-stalled": (34.0, 36.0),
        "replies-cut": (2.0, 4.0),
        "bytes-held": (8.0, 12.0),
        "connections-silent": (4.0, 8.0),
        "right-taken": (3.0, 3.0),
        "key-in-the-way": (3.0, 3.0),
        "clock-ahead": (2.0, 3.0),
        "clock-behind": (2.0, 4.0),
        "scripts-flushed": (0.0, 0.0),
        "process-killed": (0.0, 0.0),
        "process-frozen": (2.0, 5.0),
        "process-frozen-past-its-lease": (34.0, 36.0),
        "worker-killed": (0.5, 1.5),
        "worker-stopped": (0.5, 1.5),
        "bridge-killed": (0.0, 0.0),
        "function-killed": (0.0, 0.0),
        "function-frozen": (2.0, 5.0),
    },
    Stage.SENTINEL: {
        "primary-killed": (6.0, 8.0),
        "primary-frozen": (6.0, 8.0),
        "scripts-flushed": (0.0, 0.0),
        "process-killed": (0.0, 0.0),
    },
    Stage.CLUSTER: {
        "primary-killed": (6.0, 8.0),
        "primary-frozen": (6.0, 8.0),
        "replica-killed": (2.0, 4.0),
        "scripts-flushed": (0.0, 0.0),
        "process-killed": (0.0, 0.0),
    },
}
"""The faults of each stage, and how many seconds each takes at least and at most."""
LONG = frozenset({"redis-stalled", "process-frozen-past-its-lease"})
"""Faults that take longer than a lease; a short storm has none."""
FIRST_FAULT_S, GAP_S = 4.0, (1.0, 3.0)


def drawn(seed: int, stage: Stage, size: Size, *, broker: bool = True, functions: bool = True) -> Plan:
    """The plan of a seed; without `broker`, nothing goes to RabbitMQ, without `functions`, no function runs."""
    dice = random.Random(f"{seed} {stage}")
    kinds = {**WORKER_KINDS, **CALLS}
    if functions:
        kinds |= {**FUNCTION_KINDS, **{name: many for name, many in SENT.items() if broker or name != "to-rabbit"}}
    faults = tuple(_faults(dice, stage, size.seconds))
    steps: list[Step] = []
    of: dict[str, str] = {}
    for n in range(size.tasks):
        id, lane = f"t-{n:05}", n % LANES
        queue = dice.choices(QUEUES, (50, 30, 8, 12))[0]
        kind = "w.killer" if n in {size.tasks // 3, size.tasks // 2} else _one_of(dice, kinds)
        if kind == "w.killer":
            queue = "default"
        if not functions:
            lane %= PYTHON_LANES
        of[f"{queue}/{id}"] = kind
        steps += _life(dice, size.seconds, Step(0, lane, "add", id, queue, {"kind": kind}))
    for n in range(size.schedules):
        steps += _schedule(dice, size.seconds, n, functions)
    steps += _gate(dice, size.seconds)
    steps = _batched(steps)
    if functions:
        steps += _reminders(dice, size)
        steps += _queries(dice, size)
    return Plan(seed, stage, size, tuple(sorted(steps, key=lambda step: step.at)), faults, of)


def _one_of(dice: random.Random, weights: dict[str, int]) -> str:
    return dice.choices(list(weights), list(weights.values()))[0]


def _life(dice: random.Random, seconds: float, add: Step) -> Iterator[Step]:
    """The steps of one task: its add, and what is changed before it is due."""
    story = _one_of(dice, STORIES) if add.fields["kind"] != "w.killer" else "plain"
    at = dice.uniform(0, seconds * 0.9)
    soon = dice.choices((0.0, dice.uniform(0, 3), dice.uniform(3, 15)), (40, 40, 20))[0]
    delay = soon if story == "plain" else dice.uniform(8, 15)
    yield replace(add, at=at, fields={**add.fields, "v": 1, "delay": delay})
    change = at + dice.uniform(0.2, 6)
    if story == "replaced":
        yield replace(add, at=change, verb="replace", fields={**add.fields, "v": 2, "delay": dice.uniform(0, 6)})
    elif story == "moved":
        yield replace(add, at=change, verb="move", fields={"delay": dice.uniform(4, 14)})
    elif story in {"cancelled", "anew"}:
        yield replace(add, at=change, verb="cancel", fields={})
    if story == "anew":
        again = {**add.fields, "v": 2, "delay": dice.uniform(0, 6)}
        yield replace(add, at=change + dice.uniform(0, 4), verb="replace", fields=again)


def _schedule(dice: random.Random, seconds: float, n: int, functions: bool) -> Iterator[Step]:
    """The steps of one schedule, which ends by its `limit`; some are paused, changed, run by hand or deleted."""
    kind = "f.tick" if functions and n % 4 == 0 else "w.tick"
    every, limit = dice.uniform(2, max(4, min(20, seconds / 5))), dice.randint(1, 4)
    add = Step(
        dice.uniform(0, seconds * 0.6), n % (LANES if functions else PYTHON_LANES), "schedule", f"s-{n:04}",
        dice.choice(QUEUES[:2]), {"kind": kind, "every": round(every, 1), "limit": limit, "v": 1},
    )  # fmt: skip
    yield add
    story = dice.random()
    later = add.at + dice.uniform(1, every)
    if story < 0.1:
        yield replace(add, at=later, verb="pause_schedule", fields={})
        yield replace(add, at=later + dice.uniform(1, 10), verb="resume_schedule", fields={})
    elif story < 0.2:
        yield replace(add, at=later, verb="delete_schedule", fields={})
    elif story < 0.3:
        yield replace(add, at=later, verb="change_schedule", fields={"v": 2})
    elif story < 0.4:
        yield replace(add, at=later, verb="run_schedule", fields={})


def _batched(steps: list[Step]) -> list[Step]:
    """Have some clients add the tasks that nothing changes later in batches, each when its first one is."""
    changed = {(step.queue, step.id) for step in steps if step.verb != "add"}
    kept, batches = [], []
    for lane in BATCH_LANES:
        alone = [s for s in steps if s.lane == lane and s.verb == "add" and (s.queue, s.id) not in changed]
        alone.sort(key=lambda step: step.at)
        for first in range(0, len(alone), BATCH):
            tasks = alone[first : first + BATCH]
            batches.append(Step(tasks[0].at, lane, "batch", tasks[0].id, tasks[0].queue, {"tasks": tasks}))
            kept += tasks
    return [step for step in steps if step not in kept] + batches


def _reminders(dice: random.Random, size: Size) -> Iterator[Step]:
    """Reminders of two people each; some are moved, some cancelled."""
    for n in range(size.schedules // 10):
        at = dice.uniform(0, size.seconds * 0.6)
        add = Step(at, 6, "remind", f"r-{n:04}", "reminders", {"starts": round(dice.uniform(40, 50), 1)})
        yield add
        if n % 5 == 0:
            yield replace(add, at=at + dice.uniform(1, 5), verb="cancel_reminder", fields={})


def _queries(dice: random.Random, size: Size) -> Iterator[Step]:
    """Queries of a slow API, each of its own."""
    for n in range(size.schedules // 10):
        yield Step(dice.uniform(0, size.seconds * 0.9), 5, "query", f"q-{n:04}", "queries")


def _gate(dice: random.Random, seconds: float) -> Iterator[Step]:
    """The queue `gate` is paused and resumed all the time, and resumed last."""
    at = 3.0
    while at < seconds:
        yield Step(at, 4, "pause", "gate", "gate")
        at += dice.uniform(1, 4)
        yield Step(at, 4, "resume", "gate", "gate")
        at += dice.uniform(3, 8)


def _faults(dice: random.Random, stage: Stage, seconds: float) -> Iterator[Fault]:
    """Faults one after another, each of the stage's before any comes again, until the time is up."""
    deck: list[str] = []
    at = FIRST_FAULT_S
    longest = seconds / 5
    while True:
        deck = deck or dice.sample(sorted(FAULTS[stage]), len(FAULTS[stage]))
        name = deck.pop()
        shortest, most = FAULTS[stage][name]
        if name in LONG and longest < shortest:
            continue
        lasts = dice.uniform(min(shortest, longest), min(most, longest)) if name not in LONG else shortest
        if at + lasts > seconds:
            return
        yield Fault(round(at, 2), name, round(lasts, 2), dice.randrange(1_000))
        at += lasts + dice.uniform(*GAP_S)
