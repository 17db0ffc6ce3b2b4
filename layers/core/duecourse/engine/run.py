"""Running one task: handle, keep the result, say how the lease ends."""

import logging
import random
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from duecourse.domain import backoff
from duecourse.domain.history import Run, cut_detail
from duecourse.domain.outcomes import Again, Done, Drop, Ending, Outcome, Retry, Settlement
from duecourse.domain.query import KIND as POLL
from duecourse.domain.task import MAX_RESULT_BYTES, Json, RetryPolicy, Task, dump_json, dump_state
from duecourse.domain.times import parse_duration, parse_instant
from duecourse.engine.task_log import about
from duecourse.errors import CallFailed, ResultsUnavailable
from duecourse.ports.results import Results

log = logging.getLogger("duecourse.engine")

Kind: TypeAlias = Callable[[Task], Outcome | None]
"""Handler of a task; None is Done."""

AWAY = RetryPolicy(backoff_ms=1_000, max_backoff_ms=30_000)
"""Delays of a task that waits for a missing service, no attempt spent: they grow with its runs."""

SOONEST_MS = 100
"""Shortest delay after an Again."""


class Runner:
    """Runs tasks of the kinds that `kind_of` knows, and answers how each lease ends.

    `results` None keeps results in the ledger.
    """

    def __init__(
        self, kind_of: Callable[[str], Kind | None], results: Results | None, now: Callable[[], int], rng: random.Random
    ) -> None:
        self._kind_of = kind_of
        self._results = results
        self._now = now
        self._rng = rng

    def run(self, task: Task) -> Settlement:
        """The end of the task's lease, whatever its handler did; what is logged meanwhile carries the task's id."""
        with about(task.id):
            return self._run(task)

    def _run(self, task: Task) -> Settlement:
        kind = self._kind_of(task.kind)
        if kind is None:
            return self._drop(task, Drop(f"no kind {task.kind!r} is known here"))
        try:
            return self.settlement(task, kind(task))
        except BaseException as error:  # noqa: BLE001 a handler may raise anything, SystemExit too: all is a Retry
            _log(task, error)
            return self._retry(task, Retry(error=_text_of(error)))

    def settlement(self, task: Task, outcome: Outcome | None) -> Settlement:
        """End of the task's lease by this outcome; a result goes to the results table first."""
        match outcome:
            case Done():
                return self._done(task, outcome)
            case None:
                return self._done(task, Done())
            case Again():
                return self._again(task, outcome)
            case Retry():
                return self._retry(task, outcome)
            case Drop():
                return self._drop(task, outcome)
        raise TypeError(f"a handler returns Done, Again, Retry or Drop, not {type(outcome).__name__}")

    def _done(self, task: Task, done: Done) -> Settlement:
        result = "" if done.result is None else dump_json(done.result)
        if (len(result) if result.isascii() else len(result.encode())) > MAX_RESULT_BYTES:
            return self._drop(task, Drop(f"the result is over {MAX_RESULT_BYTES // 1024} KiB"))
        if self._results is not None and (result or task.kind == POLL):
            return self._keep(self._results, task, result or "null")
        return Settlement.of(task, Ending.DONE, result=result)

    def _keep(self, results: Results, task: Task, result: str) -> Settlement:
        """Keep the result in its database before the lease ends: after a crash between the two, the task runs again.

        The new run overwrites it. A poll's null is kept too: it is an answer, not the answer before it, nor a missing
        one. Where a higher fence has written, the lease is lost, and the settle is stale.
        """
        try:
            results.put(task, result, self._now())
        except ResultsUnavailable as error:
            log.warning("task %s waits because its result could not be stored: %s", task.id, error)
            return put_off(task, self._rng, f"the result could not be stored: {error}")
        return Settlement.of(task, Ending.DONE)

    def _again(self, task: Task, again: Again) -> Settlement:
        # An instant is compared with the store's clock as of the claim: to ask for the time costs a round trip.
        due_at = None if again.at is None else max(parse_instant(again.at), task.claimed_at + SOONEST_MS)
        delay_ms = max(parse_duration(again.after) if again.after is not None else 0, SOONEST_MS)
        return Settlement.of(task, Ending.AGAIN, due_at=due_at, delay_ms=delay_ms, state=_state(again.state))

    def _retry(self, task: Task, retry: Retry) -> Settlement:
        if retry.after is None:
            delay_ms = backoff.delay_ms(task.retry, task.attempt, self._rng)
        else:
            delay_ms = parse_duration(retry.after)
        detail = cut_detail(str(retry.error))
        return Settlement.of(task, Ending.RETRY, delay_ms=delay_ms, state=_state(retry.state), detail=detail)

    def _drop(self, task: Task, drop: Drop) -> Settlement:
        return Settlement.of(task, Ending.DROP, detail=cut_detail(str(drop.reason)))


def release(task: Task) -> Settlement:
    """Gives back a task that was not started."""
    return Settlement.of(task, Ending.RELEASE)


def put_off(task: Task, rng: random.Random, why: str) -> Settlement:
    """Gives back a task that could not be finished because something was away, for a while; its log says why."""
    last = task.log[-1] if task.log else None
    given_back = last.times if isinstance(last, Run) and last.outcome == Ending.RELEASE else 0
    times = max(task.run, given_back + 1)  # a delivery that is given back was no run
    return release(task)._replace(delay_ms=backoff.delay_ms(AWAY, times, rng), detail=cut_detail(why))


def _log(task: Task, error: BaseException) -> None:
    """Log the traceback for the authors of the code; the ledger keeps the error's last line only."""
    if isinstance(error, CallFailed):
        return
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    place = f"{Path(frame.f_code.co_filename).name}, line {line}"
    shown = _shown(error)
    log.warning("task %s raised at %s", task.id, place, exc_info=(type(shown), shown, error.__traceback__))


def _shown(error: BaseException) -> Exception:
    """Replace an error for the log: of the same name, without credentials, in a text that any log can write."""
    _, _, text = _text_of(error).partition(": ")
    named: type[Exception] = type(type(error).__name__, (Exception,), {})
    return named(cut_detail(text))


def _text_of(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


def _state(value: Json) -> str | None:
    return None if value is None else dump_state(value)
