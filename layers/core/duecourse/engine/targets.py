"""Where a kind's work is done: here, or in a function that settles by itself."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from duecourse.domain.outcomes import Settlement
from duecourse.domain.task import Task, dump_json
from duecourse.engine.run import release
from duecourse.errors import InvocationRefused
from duecourse.ports.invoker import Invoker
from duecourse.wire.invocation import tasks_event

LAMBDA = "lambda:"
MAX_TASKS = 10
"""The most tasks of one invocation: its function has one timeout for them all."""
MAX_BYTES = 240_000
"""What fits into an asynchronous invocation (256 KiB), less the event around the tasks."""
REFUSED_DELAY_MS = 1_000


class Targets:
    """Kinds by name: those not listed are worked inline."""

    def __init__(self, targets: Mapping[str, str], invoker: Invoker) -> None:
        self._functions = {k: t.removeprefix(LAMBDA) for k, t in targets.items() if t.startswith(LAMBDA)}
        self._invoker = invoker

    def function_of(self, task: Task) -> str:
        """The function that works the task, "" where it is worked inline."""
        return self._functions.get(task.kind, "")

    def batches(self, tasks: Sequence[Task]) -> Iterator[tuple[str, list[Task]]]:
        """The tasks by function, in pieces that one invocation takes."""
        for function, group in groupby(sorted(tasks, key=self.function_of), key=self.function_of):
            for batch in _cut(group):
                yield function, batch

    def hand_over(self, function: str, tasks: Sequence[Task]) -> list[Settlement]:
        """Invoke the function with the tasks, which it settles; where it is refused, their release."""
        try:
            self._invoker.send(function, tasks_event(tasks))
        except InvocationRefused:
            return [release(task, REFUSED_DELAY_MS) for task in tasks]
        return []


def _cut(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    batch: list[Task] = []
    size = 0
    for task in tasks:
        length = len(dump_json(task.payload_json)) + len(task.state_json) + 600
        if batch and (len(batch) == MAX_TASKS or size + length > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(task)
        size += length
    if batch:
        yield batch
