"""Leases of a process that has died: its worker's parent gives them back at once."""

import logging
import random
import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

from duecourse.domain.outcomes import Settlement
from duecourse.domain.task import Status, Task
from duecourse.engine.interrupted import DIED, UNSETTLED, interrupted, killed
from duecourse.engine.run import release
from duecourse.errors import StoreMisused, StoreUnavailable, TaskDamaged
from duecourse.ports.store import Store

log = logging.getLogger("duecourse.worker")

PATIENCE_S = 25.0
"""Time for which a store that is away is asked again: a lease that is not extended lapses soon after."""
PAUSE_S = 1.0


class State(IntEnum):
    """State of a task whose lease the process has."""

    WAITS = 0
    """It was claimed, and has not begun."""
    RUNS = 1
    APART = 2
    """It runs in a process of its own."""
    ENDED = 3
    """Its outcome is not settled."""


class Held(NamedTuple):
    """Lease of a task that the process has."""

    queue: str
    id: str
    tenant: str
    group: str
    token: str
    state: State


class Bereft:
    """Gives back what a process had that has died; the store is opened for the first of it."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self._store: Store | None = None
        self._rng = random.Random()

    def give_back(self, held: Sequence[Held], how: str) -> None:
        """End the leases. An attempt is spent if one alone may have ended the process: then that one has.

        Those that ran beside others are due again at once, each in a process of its own until it has ended. So are
        those that had not begun, and those whose outcome was lost, but in any process.
        """
        suspects = [one for one in held if one.state is State.RUNS]
        for one in held:
            self._try(one, how if suspects == [one] else "")

    def release(self, held: Sequence[Held], why: str) -> None:
        """End the leases of a process that its worker's stop has ended: no attempt is spent."""
        for one in held:
            self._end(one, release if one.state is State.WAITS else lambda task: interrupted(task, why))

    def _try(self, one: Held, how: str) -> None:
        ends_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._end(one, lambda task: self._ended(task, one, how))
            except (StoreUnavailable, StoreMisused) as error:
                if time.monotonic() >= ends_at:
                    log.warning("the lease of task %s will lapse: %s", one.id, error)
                    return None
            time.sleep(PAUSE_S)

    def _ended(self, task: Task, one: Held, how: str) -> Settlement:
        if one.state is State.WAITS:
            return release(task)
        if one.state is State.ENDED:
            return interrupted(task, UNSETTLED)
        return killed(task, how, self._rng) if how else interrupted(task, DIED)

    def _end(self, one: Held, end_of: Callable[[Task], Settlement]) -> None:
        self._store = self._store or self._open_store()
        try:
            task = self._store.get(one.queue, one.id, one.tenant)
        except TaskDamaged:
            return
        if task and task.status is Status.LEASED and task.token == one.token:
            end = end_of(task)
            log.warning("task %s is given back: %s", one.id, end.detail or "it had not begun")
            self._store.settle(self._store.shard_of(one.queue, one.id, one.group), [end])
