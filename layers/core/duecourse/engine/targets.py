"""Where a kind's work is done: here, or in a function that settles by itself."""

import logging
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from duecourse.domain.outcomes import Settlement
from duecourse.domain.task import Task
from duecourse.engine.run import put_off
from duecourse.ports.invoker import Invoker
from duecourse.wire.invocation import tasks_event

log = logging.getLogger("duecourse.engine")

LAMBDA = "lambda:"
MAX_TASKS = 10
"""The most tasks of one invocation: its function has one timeout for them all."""
MAX_BYTES = 240_000
"""What fits into an asynchronous invocation (256 KiB), less the event around the tasks."""
ENVELOPE_BYTES = 1_000
"""What a task takes besides its payload and state: the longest names, the policy, the lease."""


class Targets:
    """Kinds by name: those not listed are worked inline."""

    def __init__(self, targets: Mapping[str, str], invoker: Invoker) -> None:
        self._functions = {k: t.removeprefix(LAMBDA) for k, t in targets.items() if t.startswith(LAMBDA)}
        self._invoker = invoker
        self._rng = random.Random()

    def function_of(self, task: Task) -> str:
        """The function that works the task, "" where it is worked inline."""
        return self._functions.get(task.kind, "")

    def batches(self, tasks: Sequence[Task]) -> Iterator[tuple[str, list[Task]]]:
        """The tasks by function, in pieces that one invocation takes."""
        for function, group in groupby(sorted(tasks, key=self.function_of), key=self.function_of):
            for batch in _cut(group):
                yield function, batch

    def hand_over(self, function: str, tasks: Sequence[Task]) -> list[Settlement]:
        """Invoke the function with the tasks, which it settles; where that fails, their release for a while.

        Should the function have been invoked all the same, it finds their leases gone.
        """
        try:
            self._invoker.send(function, tasks_event(tasks))
        except Exception as error:  # noqa: BLE001 one piece of a drain, whose other tasks go on
            log.warning("%d tasks wait, for %s could not be invoked: %s", len(tasks), function, error)
            return [put_off(task, self._rng) for task in tasks]
        return []


def _cut(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    batch: list[Task] = []
    size = 0
    for task in tasks:
        length = len(task.payload_json.encode()) + len(task.state_json.encode()) + ENVELOPE_BYTES
        if batch and (len(batch) == MAX_TASKS or size + length > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(task)
        size += length
    if batch:
        yield batch
