"""Runs that their process cut short, by its stop or by its death: who pays for that with an attempt."""

import random

from duecourse.domain import backoff
from duecourse.domain.history import Run, cut_detail
from duecourse.domain.outcomes import Ending, Settlement
from duecourse.domain.task import Task

STOPPED = "the worker was stopped before the handler returned"
DIED = "its process died while it ran"
"""Beginning of the detail of such a run. The ledger keeps it, so that every worker knows the suspects."""
UNSETTLED = "its process died before its outcome was settled"
SPARED = 10
"""Number of runs in a row that may end in one of these ways without an attempt."""


def interrupted(task: Task, why: str) -> Settlement:
    """End of a run that was cut short by no fault of its own: due again at once, and no attempt spent, SPARED times."""
    last = _last_run(task)
    is_spared = not (last and last.outcome == Ending.RELEASE and why in last.detail and last.times >= SPARED)
    ending = Ending.RELEASE if is_spared else Ending.RETRY
    return Settlement.of(task, ending, detail=cut_detail(why) if why == DIED else why_given_back(task, why))


def killed(task: Task, how: str, rng: random.Random) -> Settlement:
    """End of a run that has ended its process: a failed attempt, retried by the task's own backoff."""
    delay_ms = backoff.delay_ms(task.retry, task.attempt, rng)
    return Settlement.of(task, Ending.RETRY, delay_ms=delay_ms, detail=cut_detail(f"{DIED}: {how}"))


def is_suspect(task: Task) -> bool:
    """True if the task's process died during its last run, and nothing has shown since that it was another's fault."""
    last = _last_run(task)
    return bool(last and last.detail.startswith(DIED) and last.outcome in {Ending.RELEASE, Ending.RETRY})


def why_given_back(task: Task, why: str = "") -> str:
    """Detail of a lease that is given back. A suspect stays one: of several in a row, the log keeps the last alone."""
    if not is_suspect(task):
        return cut_detail(why)
    return cut_detail(f"{DIED}; then given back: {why}" if why else DIED)


def _last_run(task: Task) -> Run | None:
    runs = (entry for entry in reversed(task.log) if isinstance(entry, Run))
    return next((run for run in runs if run.outcome != Ending.UNDELIVERED), None)
