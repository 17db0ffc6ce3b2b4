"""Working the tasks that a broker delivered, in the function that reads its queue: no lease, nothing to settle."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from queue import SimpleQueue

from duecourse.domain.outcomes import Ending, Settlement
from duecourse.domain.task import NewTask, Task
from duecourse.engine.run import Runner
from duecourse.engine.tasks import require
from duecourse.engine.threads import Threads
from duecourse.errors import DuecourseError
from duecourse.ports.tasks import TaskStore

log = logging.getLogger("duecourse.engine")


def receive(
    tasks: Mapping[str, Task],
    runner: Runner,
    threads: Threads,
    store: Callable[[], TaskStore],
    parallel: int | None = None,
) -> dict[str, str]:
    """Run the tasks at the same time, at most `parallel` if it is given.

    Returns those to be delivered again, by their keys, with the reasons. Done and Drop end a message, and so does Again
    once the ledger has the task back. After Retry or an exception the broker delivers it again, when it sees fit.
    `store` is asked for only by a task that is to run again.
    """
    outbox: SimpleQueue[tuple[str, str]] = SimpleQueue()

    def work(name: str, task: Task) -> None:
        outbox.put((name, _end(task, runner.run(task), store)))

    def begin(most: int | None) -> None:
        for name, task in islice(waiting, most):
            threads.do(partial(work, name, task))

    ended, waiting = [], iter(tasks.items())
    begin(parallel)
    for _ in tasks:
        ended.append(outbox.get())
        begin(1)
    return {name: problem for name, problem in ended if problem}


def _end(task: Task, settlement: Settlement, store: Callable[[], TaskStore]) -> str:
    """Reason why the message must be delivered again, or ""."""
    match settlement.ending:
        case Ending.DONE:
            return ""
        case Ending.DROP:
            log.error("task %s, delivered by a broker, is dropped: %s", task.id, settlement.detail)
            return ""
        case Ending.AGAIN:
            return _give_back(task, settlement, store)
    return settlement.detail or "the result could not be stored"


def _give_back(task: Task, settlement: Settlement, store: Callable[[], TaskStore]) -> str:
    """Have the ledger keep the task until it is due again; a task that was added meanwhile under its id stays."""
    try:
        [added] = store().add([_anew(task, settlement)])
        require(added.reply, task.queue, task.id, task.tenant)
    except DuecourseError as error:
        return f"the ledger did not accept it back: {error}"
    return ""


def _anew(task: Task, settlement: Settlement) -> NewTask:
    return NewTask(
        id=task.id,
        kind=task.kind,
        payload=task.payload_json,
        queue=task.queue,
        tenant=task.tenant,
        group=task.group,
        state=task.state_json if settlement.state is None else settlement.state,
        due_at=settlement.due_at,
        delay_ms=settlement.delay_ms,
        deadline_at=task.deadline_at or None,
        retry=task.retry,
        by="broker",
    )
