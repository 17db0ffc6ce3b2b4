"""Running one task: handle, keep the result, say how the lease ends."""

import logging
import random
import traceback
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

from duecourse.domain import backoff
from duecourse.domain.history import Run, cut_detail, with_place
from duecourse.domain.notification import is_notification
from duecourse.domain.outcomes import Again, Done, Drop, Ending, Outcome, Retry, Settlement
from duecourse.domain.query import KIND as POLL
from duecourse.domain.query import QUEUE_PREFIX
from duecourse.domain.seals import hidden_in, secret_words, without
from duecourse.domain.task import KEPT_AT, MAX_RESULT_BYTES, Json, RetryPolicy, Task, dump_json, dump_state
from duecourse.domain.times import parse_duration, parse_instant
from duecourse.engine.error_place import place_of
from duecourse.engine.interrupted import why_given_back
from duecourse.engine.reach import CALLING
from duecourse.engine.task_log import about
from duecourse.errors import (
    CallFailed,
    Crowded,
    ResultsUnavailable,
    SealBroken,
    SecretUnavailable,
    StoreMisused,
    StoreUnavailable,
    TaskDamaged,
)
from duecourse.ports.results import Results

log = logging.getLogger("duecourse.engine")

Kind: TypeAlias = Callable[[Task], Outcome | None]
"""Handler of a task; None is Done."""
Elsewhere: TypeAlias = Callable[[Task], Settlement | None]
Words: TypeAlias = Callable[[], Sequence[str]]
"""Words of a task's credentials, looked for only where its run has an error."""

AWAY = RetryPolicy(backoff_ms=1_000, max_backoff_ms=30_000)
"""Delays of a task that waits for a missing service, no attempt spent: they grow with its runs."""

CROWDED_MS = 200, 1_000
"""Shortest and longest delay of a task whose tenant keeps the process busy."""

SOONEST_MS = 100
"""Shortest delay after an Again."""

QUICK_ATTEMPTS = 10
"""Attempts of a task that calls a URL for which its own backoff may be as short as it says."""
LEAST_BACKOFF_MS = 1_000
"""Shortest delay after each further one: a host that fails is not called a thousand times in a row."""


class Runner:
    """Runs tasks of the kinds that `kind_of` knows, and answers how each lease ends.

    `results` None keeps results in the ledger. `opened` opens the seal of a task; None where tasks come opened.
    `elsewhere` runs a task in another process; it answers None for a task that is to run here.
    """

    def __init__(
        self,
        kind_of: Callable[[str], Kind | None],
        results: Results | None,
        now: Callable[[], int],
        rng: random.Random,
        opened: Callable[[Task], Task] | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._kind_of = kind_of
        self._results = results
        self._now = now
        self._rng = rng
        self._opened = opened
        self._elsewhere = elsewhere

    def run(self, task: Task) -> Settlement:
        """The end of the task's lease, whatever its handler did; what is logged meanwhile carries the task."""
        with about(task):
            if self._elsewhere and (end := self._elsewhere(task)):
                return end
            try:
                opened = self._opened(task) if self._opened else task
            except (SealBroken, TaskDamaged) as error:
                return self._drop(task, Drop(str(error)))
            except (StoreUnavailable, StoreMisused) as error:
                return put_off(task, self._rng, str(error))
            words = cache(partial(credential_words, opened, task))
            end = self._run(opened, words)
            return end._replace(detail=without(end.detail, words())) if end.detail else end

    def _run(self, task: Task, words: Words) -> Settlement:
        """The end of an opened task's lease; `words` of its credentials are kept out of the log."""
        kind = self._kind_of(task.kind)
        if kind is None:
            return self._unknown(task)
        try:
            return self.settlement(task, kind(task))
        except TaskDamaged as error:
            return self._drop(task, Drop(str(error)))
        except Crowded as error:
            return self.later(task, str(error))
        except SecretUnavailable as error:
            log.warning("task %s waits: %s", task.id, error)
            return put_off(task, self._rng, str(error))
        except BaseException as error:  # noqa: BLE001 a handler may raise anything, SystemExit too: all is a Retry
            _log(task, error, words)
            end = self._retry(task, Retry(error=_text_of(error)))
            return end._replace(detail=with_place(end.detail, place_of(error)))

    def _unknown(self, task: Task) -> Settlement:
        """Leave a task to a process that has its kind; drop a notification whose target is no longer set."""
        why = f"nothing here runs the kind {task.kind!r}"
        return self._drop(task, Drop(why)) if is_notification(task.id) else put_off(task, self._rng, why)

    def later(self, task: Task, why: str) -> Settlement:
        """Gives back a task for a moment, which is no run of it: its tenant's others keep the process busy."""
        return release(task)._replace(delay_ms=self._rng.randint(*CROWDED_MS), detail=why_given_back(task, why))

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
        # The ledger names the table, for programs that do not know it. A query's answer is looked for there anyway, and
        # programs of 0.1.0 would take the name for it.
        kept_at = "" if task.queue.startswith(QUEUE_PREFIX) else KEPT_AT + dump_json(results.place)
        return Settlement.of(task, Ending.DONE, result=kept_at)

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
        if task.kind in CALLING and task.attempt >= QUICK_ATTEMPTS:
            delay_ms = max(delay_ms, LEAST_BACKOFF_MS)
        detail = cut_detail(str(retry.error))
        return Settlement.of(task, Ending.RETRY, delay_ms=delay_ms, state=_state(retry.state), detail=detail)

    def _drop(self, task: Task, drop: Drop) -> Settlement:
        return Settlement.of(task, Ending.DROP, detail=cut_detail(str(drop.reason)))


def release(task: Task) -> Settlement:
    """Gives back a task that was not started."""
    return Settlement.of(task, Ending.RELEASE, detail=why_given_back(task))


def put_off(task: Task, rng: random.Random, why: str) -> Settlement:
    """Gives back a task that could not be finished because something was away, for a while; its log says why."""
    last = task.log[-1] if task.log else None
    given_back = last.times if isinstance(last, Run) and last.outcome == Ending.RELEASE else 0
    times = max(task.run, given_back + 1)  # a delivery that is given back was no run
    return release(task)._replace(delay_ms=backoff.delay_ms(AWAY, times, rng), detail=why_given_back(task, why))


def credential_words(opened: Task, kept: Task) -> list[str]:
    """Words of a task's credentials: those that the ledger has sealed, or that a view hides of a task in clear."""
    if opened is not kept:
        return secret_words(opened.payload_json, kept.payload_json)
    hidden = hidden_in(opened.payload_json, opened.kind)
    return secret_words(opened.payload_json, dump_json(hidden.shown)) if hidden else []


def _log(task: Task, error: BaseException, words: Words) -> None:
    """Log the traceback for the authors of the code; the ledger keeps the error's last line only."""
    if isinstance(error, CallFailed):
        return
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    place = f"{Path(frame.f_code.co_filename).name}, line {line}"
    shown = _shown(error, words)
    exc_info = type(shown), shown, error.__traceback__
    log.warning(
        "task %s raised at %s (queue %s, kind %s, attempt %d)",
        task.id,
        place,
        task.queue,
        task.kind,
        task.attempt,
        exc_info=exc_info,
    )


def _shown(error: BaseException, words: Words) -> Exception:
    """Replace an error for the log: of the same name, without credentials, in a text that any log can write."""
    _, _, text = _text_of(error).partition(": ")
    of = type(error)
    # By its module too: a traceback would name this one, which has no such class.
    named: type[Exception] = type(of.__name__, (Exception,), {"__module__": of.__module__})
    return named(cut_detail(without(text, words())))


def _text_of(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


def _state(value: Json) -> str | None:
    return None if value is None else dump_state(value)
