"""Runs of a process that has died: their leases are given back at once, by the worker's parent."""

import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from duecourse.domain.outcomes import Settlement
from duecourse.domain.task import Status, Task
from duecourse.engine.interrupted import DIED, interrupted, killed
from duecourse.errors import StoreMisused, StoreUnavailable, TaskDamaged
from duecourse.ports.store import Store

log = logging.getLogger("duecourse.worker")

PATIENCE_S = 25.0
"""Time for which a store that is away is asked again: a lease that is not extended lapses soon after."""
PAUSE_S = 1.0


class Running(NamedTuple):
    """Lease of a task that runs; `apart` in a process of its own."""

    queue: str
    id: str
    tenant: str
    group: str
    token: str
    apart: bool = False


class Bereft:
    """Gives back what ran in a process that has died; the store is opened for the first of them."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self._store: Store | None = None
        self._rng = random.Random()

    def give_back(self, running: Sequence[Running], how: str) -> None:
        """End the leases. An attempt is spent if one alone may have ended the process: then that one has.

        Those that ran beside others are due again at once, each in a process of its own until it has ended.
        """
        suspects = [one for one in running if not one.apart]
        for one in running:
            self._try(one, how if suspects == [one] else "")

    def release(self, running: Sequence[Running], why: str) -> None:
        """End the leases of a process that its worker's stop has ended: no attempt is spent."""
        for one in running:
            self._end(one, lambda task: interrupted(task, why))

    def _try(self, one: Running, how: str) -> None:
        ends_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._end(one, lambda task: killed(task, how, self._rng) if how else interrupted(task, DIED))
            except (StoreUnavailable, StoreMisused) as error:
                if time.monotonic() >= ends_at:
                    log.warning("the lease of task %s will lapse: %s", one.id, error)
                    return None
            time.sleep(PAUSE_S)

    def _end(self, one: Running, end_of: Callable[[Task], Settlement]) -> None:
        self._store = self._store or self._open_store()
        try:
            task = self._store.get(one.queue, one.id, one.tenant)
        except TaskDamaged:
            return
        if task and task.status is Status.LEASED and task.token == one.token:
            end = end_of(task)
            log.warning("task %s was running: %s", one.id, end.detail)
            self._store.settle(self._store.shard_of(one.queue, one.id, one.group), [end])
