"""Working the tasks of one invocation, in the function that they were handed to."""

from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue

from duecourse.domain.outcomes import Settlement
from duecourse.domain.shards import by_shard
from duecourse.domain.task import Shard, Task
from duecourse.engine.crew import Crew
from duecourse.engine.run import Runner
from duecourse.errors import StoreUnavailable
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
        Raises StoreUnavailable, where the store did not take a settlement, when all have run.
        """
        counts = dict.fromkeys(map(str, Settled), 0)
        outbox: SimpleQueue[tuple[Shard, Settlement]] = SimpleQueue()
        held = self._hold(tasks, remaining_ms() + self._margin_ms)
        counts[Settled.STALE] += len(tasks) - len(held)
        for shard, task in held:
            self._crew.do(partial(self._run, shard, task, outbox))
        unsettled: list[tuple[Shard, Settlement]] = []
        for _ in held:
            unsettled.append(outbox.get())
            away = self._settle(unsettled, counts)
        if unsettled and away:
            raise away
        return counts

    def _hold(self, tasks: Sequence[Task], lease_ms: int) -> list[tuple[Shard, Task]]:
        """The tasks whose leases are still theirs: a late invocation must not run what has gone to another."""
        held: list[tuple[Shard, Task]] = []
        for shard, chosen in by_shard([self._shard_of(task) for task in tasks]).items():
            batch = [tasks[index] for index in chosen]
            leases = [Lease(task.id, task.token, task.tenant) for task in batch]
            ends = self._store.extend(shard, leases, lease_ms)
            found = zip(batch, ends, strict=True)
            held += [(shard, task._replace(lease_expires_at=end)) for task, end in found if end]
        return held

    def _shard_of(self, task: Task) -> Shard:
        return self._store.shard_of(task.queue, task.id, task.group)

    def _run(self, shard: Shard, task: Task, outbox: SimpleQueue[tuple[Shard, Settlement]]) -> None:
        outbox.put((shard, self._runner.run(task)))

    def _settle(self, unsettled: list[tuple[Shard, Settlement]], counts: dict[str, int]) -> StoreUnavailable | None:
        """Settle what is not yet, until the store is away: then it is tried again with the next one that finishes."""
        try:
            while unsettled:
                shard, settlement = unsettled[0]
                counts[self._store.settle(shard, [settlement])[0]] += 1
                del unsettled[0]
        except StoreUnavailable as error:
            return error
        return None
