"""Working the tasks of one invocation, in the function that they were handed to."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from queue import SimpleQueue

from duecourse.domain.outcomes import Settlement
from duecourse.domain.task import Shard, Task
from duecourse.engine.crew import Crew
from duecourse.engine.run import Runner
from duecourse.ports.store import Lease, Settled, Store


class Worker:
    """Runs tasks that another leased, and settles them."""

    def __init__(self, store: Store, runner: Runner, crew: Crew, margin_ms: int) -> None:
        self._store = store
        self._runner = runner
        self._crew = crew
        self._margin_ms = margin_ms

    def work(self, tasks: Sequence[Task], remaining_ms: Callable[[], int]) -> dict[str, int]:
        """Run the tasks whose leases still hold, each made to outlast this function; answers what became of them.

        Each is settled as it finishes. Keys are the values of Settled; `stale` were not run, or lost their lease.
        """
        counts = dict.fromkeys(map(str, Settled), 0)
        outbox: SimpleQueue[Settlement] = SimpleQueue()
        by_queue = sorted(tasks, key=lambda task: task.queue)
        for queue, group in groupby(by_queue, key=lambda task: task.queue):
            shard, batch = Shard(queue), list(group)
            held = self._hold(shard, batch, remaining_ms())
            counts[Settled.STALE] += len(batch) - len(held)
            for task in held:
                self._crew.do(partial(self._run, task, outbox))
            for _ in held:
                counts[self._store.settle(shard, [outbox.get()])[0]] += 1
        return counts

    def _hold(self, shard: Shard, tasks: Sequence[Task], remaining_ms: int) -> list[Task]:
        """The tasks whose leases are still theirs: a late invocation must not run what has gone to another."""
        leases = [Lease(task.id, task.token, task.tenant) for task in tasks]
        ends = self._store.extend(shard, leases, remaining_ms + self._margin_ms)
        return [task._replace(lease_expires_at=end) for task, end in zip(tasks, ends, strict=True) if end]

    def _run(self, task: Task, outbox: SimpleQueue[Settlement]) -> None:
        outbox.put(self._runner.run(task))
