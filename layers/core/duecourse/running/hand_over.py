"""Targets of kinds: this process, a function that settles by itself, or a broker's queue."""

import logging
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from duecourse.base.batches import cut
from duecourse.errors import (
    ResultsUnavailable,
    SealBroken,
    SealUnavailable,
    StoreMisused,
    StoreUnavailable,
    TaskDamaged,
)
from duecourse.ledger.operation_types import Deliveries, Delivery
from duecourse.ledger.task import Ending, Settlement, Task
from duecourse.running.run import postpone
from duecourse.running.task_event import BrokerMessage, Publisher, Send, message_body, tasks_event

log = logging.getLogger("duecourse.running")

INLINE = "inline"
WORKER = "worker"
"""Target of a kind that worker processes run, and nobody else."""
LAMBDA = "lambda"
MAX_TASKS = 10
"""The most tasks of one invocation: its function has one timeout for them all."""
MAX_BYTES = 240_000
"""Size of the tasks in an asynchronous invocation (256 KiB), less the event around them."""
ENVELOPE_BYTES = 1_000
"""Size of a task besides its payload and state: the longest names, the policy, the lease."""
Prepare: TypeAlias = Callable[[Task], Task]
"""`App.prepared`: a task as its target gets it.

May raise StoreUnavailable, ResultsUnavailable, SealBroken or TaskDamaged.
"""


class Targets:
    """Kinds by name: those not listed are worked inline; `brokers` by the word before a target's colon.

    `prepare` opens a task's seal, and gives a notification its content. A function has at most
    `outstanding` tasks of a shard that it has not begun, each for `delivery_lease_ms`.
    `here` are the kinds that are worked inline, if not all are.
    """

    def __init__(
        self,
        targets: Mapping[str, str],
        send: Send,
        brokers: Mapping[str, Publisher],
        prepare: Prepare,
        *,
        outstanding: int,
        delivery_lease_ms: int,
        here: Collection[str] = (),
    ) -> None:
        self._prepare = prepare
        self._targets = {kind: target for kind, target in targets.items() if target not in {INLINE, WORKER}}
        self._send = send
        self._brokers = brokers
        self._rng = random.Random()
        self.deliveries: Deliveries = {
            kind: Delivery(target, outstanding, delivery_lease_ms)
            for kind, target in self._targets.items()
            if target.startswith(f"{LAMBDA}:")
        }
        """Kinds that a claim leases for delivery: those of functions, which begin their tasks."""
        self.kinds = frozenset(here).union(self._targets).difference(self.deliveries) if here else frozenset[str]()
        """The other kinds that a claim is to take; none where it takes all."""

    def of(self, task: Task) -> str:
        """The target that the task is handed to (`lambda:<function>`, `sqs:<queue>` …), "" where it is worked here."""
        return self._targets.get(task.kind, "")

    def batches(self, tasks: Sequence[Task], each: Mapping[str, int]) -> Iterator[tuple[str, list[Task]]]:
        """The tasks by target, in batches for one invocation; `each` bounds the batches of some targets further."""
        for target, group in groupby(sorted(tasks, key=self.of), key=self.of):
            for batch in _cut(group, each.get(target, MAX_TASKS)):
                yield target, batch

    def hand_over(self, target: str, tasks: Sequence[Task]) -> list[Settlement]:
        """Hand the tasks to their target; returns the settlements of those that the target does not settle itself.

        A function begins and settles the tasks of its invocation. A task that a broker has confirmed is done here and
        the broker's from then on. A task that was not accepted is released for a while, no attempt spent. If it arrived
        all the same, a function finds its delivery gone, and a queue holds it twice.
        """
        ready, ends = [], []
        for task in tasks:
            try:
                ready.append(self._prepare(task))
            except (SealBroken, TaskDamaged) as error:
                ends.append(Settlement.of(task, Ending.DROP, detail=str(error)))
            except SealUnavailable as error:
                log.warning("task %s waits because its seal cannot be opened: %s", task.id, error)
                ends.append(postpone(task, self._rng, str(error)))
            except (StoreUnavailable, StoreMisused, ResultsUnavailable) as error:
                log.warning("task %s waits because the task that it refers to cannot be read: %s", task.id, error)
                ends.append(postpone(task, self._rng, f"the task that it refers to cannot be read: {error}"))
        return ends + [end for batch in _cut(ready) for end in self._hand_over(target, batch)]

    def _hand_over(self, target: str, tasks: Sequence[Task]) -> list[Settlement]:
        scheme, _, name = target.partition(":")
        try:
            if scheme == LAMBDA:
                self._send(name, tasks_event(tasks))  # next: `LambdaInvoker.send`; in the function, task_handlers.py
                return []
            messages = [BrokerMessage(t.idempotency_key, message_body(t), f"{t.queue}/{t.tenant}") for t in tasks]
            problems = self._brokers[scheme].publish(name, messages)
            return [self._end(task, target, problem) for task, problem in zip(tasks, problems, strict=True)]
        except TaskDamaged as error:  # found before anything was sent: it must not hold the others up
            if len(tasks) == 1:
                return [Settlement.of(tasks[0], Ending.DROP, detail=str(error))]
            return [end for task in tasks for end in self._hand_over(target, [task])]
        except Exception as error:  # noqa: BLE001 one batch of a drain, whose other tasks go on
            log.warning("%d tasks wait because %s did not accept them: %s", len(tasks), target, error)
            return [postpone(task, self._rng, f"{target} did not accept it: {error}") for task in tasks]

    def _end(self, task: Task, target: str, problem: str) -> Settlement:
        if not problem:
            return Settlement.of(task, Ending.DONE)  # the broker owns it from now on
        log.warning("task %s waits because %s did not confirm it: %s", task.id, target, problem)
        return postpone(task, self._rng, f"{target} did not confirm it: {problem}")


def _cut(tasks: Iterable[Task], most: int = MAX_TASKS) -> Iterator[list[Task]]:
    return cut(tasks, _size, most=most, max_bytes=MAX_BYTES)


def _size(task: Task) -> int:
    return len(task.payload_json.encode()) + len(task.state_json.encode()) + ENVELOPE_BYTES
