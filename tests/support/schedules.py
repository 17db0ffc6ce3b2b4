"""Short words for what tests do to schedules: one each minute is put, fired at its time, and looked at."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from duecourse.ledger.operation_types import Fired, Put
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.schedule import (
    NEVER,
    Became,
    Every,
    Firing,
    Occurrence,
    Progress,
    Rule,
    Schedule,
    StoredSchedule,
    occurrence_id,
)
from duecourse.ledger.task import DEFAULT_TENANT, Shard
from duecourse.running.drain import Fire
from tests.support.clock import START
from tests.support.ledger import SHARD, STEADY

MINUTE = 60_000
ZONES = "2026f"


def series(id: str = "s", **fields: Any) -> Schedule:
    """A schedule of every minute."""
    return Schedule(id, **{"kind": "work", "rule": Rule(Every(MINUTE), START), "retry": STEADY} | fields)


def begun(at: int = START + MINUTE, **fields: Any) -> Progress:
    """Progress of one that has not fired yet, and does at `at`."""
    return Progress(**{"nominal": at, "next_at": at, "zones": ZONES} | fields)


def put(ledger: Ledger, id: str = "s", at: int = START + MINUTE, **fields: Any) -> Put:
    """Add a schedule that fires at `at`."""
    return ledger.put_schedule(series(id, **fields), begun(at)).put


def kept(ledger: Ledger, id: str = "s", tenant: str = DEFAULT_TENANT) -> StoredSchedule:
    """The schedule as it is kept; fails where there is none."""
    found = ledger.schedule(SHARD.queue, id, tenant)
    assert found is not None
    return found


def step(one: StoredSchedule, *nominals: int, due_at: int | None = None, every_ms: int = MINUTE) -> Firing:
    """The step that adds the occurrences of these nominal times, by default of the next one."""
    now = one.progress
    assert nominals or now.nominal is not None
    times = nominals or (now.nominal or 0,)
    recent = (*now.recent, *(Occurrence(nominal, Became.LIVE) for nominal in times))[-10:]
    after = max(times) + every_ms
    tasks = tuple(one.schedule.occurrence(nominal, nominal if due_at is None else due_at) for nominal in times)
    progress = replace(now, nominal=after, next_at=after, fired=now.fired + len(times), recent=recent)
    return Firing(one, tasks, progress)


def fire(ledger: Ledger, id: str = "s", *nominals: int, tenant: str = DEFAULT_TENANT) -> Fired:
    """Fire one schedule as it is kept now, whether or not it is due."""
    one = kept(ledger, id, tenant)
    [fired] = ledger.fire(ledger.shard_of(SHARD.queue, "", one.schedule.series), [step(one, *nominals)])
    return fired


def due(ledger: Ledger, shard: Shard = SHARD) -> list[StoredSchedule]:
    """Schedules that a claim finds due; a task that it finds it leases for a millisecond."""
    return ledger.claim(shard, 1, lease_ms=1).schedules


def fire_due(ledger: Ledger, fire: Fire, shard: Shard = SHARD) -> bool:
    """Fire what a claim finds due, as a drain does; False for nothing."""
    claim = ledger.claim(shard, 1, lease_ms=1)
    if claim.schedules:
        fire(shard, claim.schedules, claim.now)
    return bool(claim.schedules)


def occurrence(number: int, id: str = "s") -> str:
    """Id of the occurrence of a number, from 1."""
    return occurrence_id(id, START + number * MINUTE)


def became(ledger: Ledger, id: str = "s", tenant: str = DEFAULT_TENANT) -> list[Became]:
    """State of each of the last occurrences."""
    return [one.became for one in kept(ledger, id, tenant).progress.recent]


def waits(ledger: Ledger, id: str) -> bool:
    """True for an occurrence that waits for the end of another."""
    task = ledger.get(SHARD.queue, id)
    return bool(task and task.due_at == NEVER)


def ids(tasks: Sequence[Any]) -> list[str]:
    """Ids of tasks, or of schedules as they are kept, in their order."""
    return [one.schedule.id if isinstance(one, StoredSchedule) else one.id for one in tasks]
