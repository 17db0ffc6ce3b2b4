"""Run of one task: handle it, keep its result, say how its lease ends, place its error."""

import logging
import os
import random
import re
import sys
import traceback
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from duecourse import errors
from duecourse.base.json_text import Json, dump_json
from duecourse.base.times import parse_duration, parse_instant
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
from duecourse.guard.seals import hidden_in, secret_words, strip_secrets
from duecourse.ledger import task as backoff
from duecourse.ledger.api_query import KIND as POLL
from duecourse.ledger.api_query import QUEUE_PREFIX
from duecourse.ledger.operation_types import Results
from duecourse.ledger.task import (
    KEPT_AT,
    MAX_RESULT_BYTES,
    SEALED,
    Again,
    Done,
    Drop,
    Ending,
    Outcome,
    Retry,
    RetryPolicy,
    Run,
    Settlement,
    Task,
    cut_detail,
    dump_state,
    is_notification,
    with_place,
)
from duecourse.running.event_loop import LOOP, RunCancelled
from duecourse.tasks.kinds import URL_KINDS

# The task on log lines: tasks of one invocation run at the same time, and share its request id.

FIELD = "duecourse_task"
"""The attribute of a log record, and the field of a JSON line. `task_id` could clash with a handler's own `extra`."""

_running: ContextVar[Task | None] = ContextVar("duecourse_running", default=None)


class log_context:  # noqa: N801 - it is used as a function
    """Add the task to each log record of this thread or asyncio task meanwhile, of any logger.

    The fields are `duecourse_task`, `duecourse_queue`, `duecourse_kind` and `duecourse_attempt`. A thread that a
    handler starts does so where it runs in a copy of the context (`contextvars.copy_context().run`).
    """

    __slots__ = ("_before", "_task")

    def __init__(self, task: Task) -> None:
        self._task = task

    def __enter__(self) -> None:
        _install()
        self._before = _running.set(self._task)

    def __exit__(self, *_raised: object) -> None:
        _running.reset(self._before)


def _fields(task: Task) -> dict[str, str | int]:
    return {
        FIELD: task.id,
        "duecourse_queue": task.queue,
        "duecourse_kind": task.kind,
        "duecourse_attempt": task.attempt,
    }


def _install() -> None:
    """Install the record factory: a filter would be one logger's, and Powertools has handlers of its own."""
    make = logging.getLogRecordFactory()
    if isinstance(make, _Marking):
        return
    logging.setLogRecordFactory(_Marking(make))


class _Marking:
    """Log record factory that adds the task of the context to each record of another factory."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __call__(self, *arguments: Any, **named: Any) -> logging.LogRecord:
        record: logging.LogRecord = self._make(*arguments, **named)
        if task := _running.get():
            vars(record).update(_fields(task))
        return record


# Usual time of a run by kind, as this process has seen it.

MOST_KINDS = 64
"""Kinds that are remembered; those of one function are few."""
SLOWLY = 8
"""Part by which a usual time goes towards that of one run, where it changes slowly."""


class RunTimes:
    """Usual times of runs in ms: each falls slowly after a shorter run, and grows by a part `rise` after a longer one.

    With a `rise` of 1, a usual time is at once that of a longer run. Threads may share it.
    """

    def __init__(self, rise: int = 1) -> None:
        self._rise = rise
        self._ms: dict[str, float] = {}

    def note(self, kind: str, ms: float) -> None:
        """Note that a run of this kind took so long."""
        known = self._ms.get(kind, ms)
        self._ms[kind] = known + (ms - known) / (self._rise if ms > known else SLOWLY)
        if len(self._ms) > MOST_KINDS:
            oldest, *_ = self._ms  # read whole: an iterator would meet the notes of other threads
            self._ms.pop(oldest, None)

    def of(self, kind: str, unknown: float = 0.0) -> float:
        """Usual time of a run of this kind; `unknown` where none is known."""
        return self._ms.get(kind, unknown)

    @property
    def longest(self) -> float | None:
        """Usual time of the slowest kind; None where none is known."""
        return max(self._ms.values(), default=None)


# Place of an error: file and line of the innermost frame in a user's own code.

LONGEST_PLACE = 80
"""Maximum length of a place, in characters: a longer file name loses its front."""
FOREIGN = (
    *(os.path.join(os.path.dirname(str(module.__file__)), "") for module in (traceback, errors)),
    "/var/runtime/",
    "/opt/python/",
)
"""Folders of Python, of duecourse, and of Lambda's runtime and layers."""
LIBRARIES = re.compile(r"[/\\](site|dist)-packages[/\\]")
UNFIT = re.compile(r"[^\w./-]")
"""Characters of a file name that a place does not show: a space would end it, a line break forge a line."""


def place_of(error: BaseException) -> str:
    """Place of an error as `app.py:9`; "" if no frame is in a user's own code, or a call failed."""
    if isinstance(error, errors.CallFailed):
        return ""
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        name = frame.f_code.co_filename
        if _is_own(name):
            number = f":{line}"
            return UNFIT.sub("_", _relative(name))[len(number) - LONGEST_PLACE :] + number
    return ""


def _is_own(name: str) -> bool:
    return not (name.startswith((*FOREIGN, "<")) or LIBRARIES.search(name))


def _relative(name: str) -> str:
    """The file from the folder that it is imported from: the folders above may name a person or a machine."""
    folders = (os.path.join(os.path.abspath(folder), "") for folder in sys.path)
    above = max((one for one in folders if name.startswith(one)), key=len, default="")
    return (name.removeprefix(above) if above else os.path.basename(name)).replace(os.sep, "/")


# Runs that ended with their process, by its stop or its death: whether they spend an attempt.

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
    return Settlement.of(task, ending, detail=cut_detail(why) if why == DIED else release_detail(task, why))


def killed(task: Task, how: str, rng: random.Random) -> Settlement:
    """End of a run that has ended its process: a failed attempt, retried by the task's own backoff."""
    delay_ms = backoff.delay_ms(task.retry, task.attempt, rng)
    return Settlement.of(task, Ending.RETRY, delay_ms=delay_ms, detail=cut_detail(f"{DIED}: {how}"))


def is_suspect(task: Task) -> bool:
    """True if the task's process died during its last run, and nothing has shown since that it was another's fault."""
    last = _last_run(task)
    return bool(last and last.detail.startswith(DIED) and last.outcome in {Ending.RELEASE, Ending.RETRY})


def release_detail(task: Task, why: str = "") -> str:
    """Detail of a lease that is given back. A suspect stays one: of several in a row, the log keeps the last alone."""
    if not is_suspect(task):
        return cut_detail(why)
    return cut_detail(f"{DIED}; then given back: {why}" if why else DIED)


def _last_run(task: Task) -> Run | None:
    if not task.log:
        return None
    runs = (entry for entry in reversed(task.log) if isinstance(entry, Run))
    return next((run for run in runs if run.outcome != Ending.UNDELIVERED), None)


# Running one task: handle, keep the result, say how the lease ends.

log = logging.getLogger("duecourse.running")

Kind: TypeAlias = Callable[[Task], Outcome | None]
"""Handler of a task; None is Done."""
AsyncKind: TypeAlias = Callable[[Task], Coroutine[Any, Any, Outcome | None]]
"""Handler of a task that is awaited on the event loop."""
Elsewhere: TypeAlias = Callable[[Task], Settlement | None]

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
    `elsewhere` runs a task in another process; it answers None for a task that is to run here. `async_kind_of` knows
    the async kinds; `kind_of` knows them too, as calls that wait for their ends.
    """

    def __init__(
        self,
        kind_of: Callable[[str], Kind | None],
        results: Results | None,
        now: Callable[[], int],
        rng: random.Random,
        opened: Callable[[Task], Task] | None = None,
        elsewhere: Elsewhere | None = None,
        async_kind_of: Callable[[str], AsyncKind | None] = lambda _name: None,
    ) -> None:
        self._kind_of = kind_of
        self._async_kind_of = async_kind_of
        self._results = results
        self._now = now
        self._rng = rng
        self._opened = opened
        self._elsewhere = elsewhere

    def awaits(self, task: Task) -> bool:
        """True if the task is for `run_async`: its kind is async, and it is not one to run elsewhere."""
        return self._async_kind_of(task.kind) is not None and not (self._elsewhere and is_suspect(task))

    def run(self, task: Task) -> Settlement:
        """Run the task; returns the end of its lease. Log records meanwhile carry the task."""
        with log_context(task):
            if self._elsewhere and (end := self._elsewhere(task)):
                return end
            opened = self._open(task)
            if isinstance(opened, Settlement):
                return opened
            kind = self._kind_of(task.kind)  # of `App.kinds`, or the user's own (task_handlers.py, worker/child.py)
            if kind is None:
                return _without_secrets(self._unknown(opened), opened, task)
            try:
                end = self.settlement(opened, kind(opened))
            except BaseException as error:  # noqa: BLE001 a handler may raise anything, SystemExit too
                end = self._failed(opened, task, error)
            return _without_secrets(end, opened, task) if end.detail else end

    async def run_async(self, task: Task) -> Settlement:
        """Run a task of an async kind as `run` does, on the event loop; what may block is done on threads."""
        kind = self._async_kind_of(task.kind)
        assert kind is not None, f"{task.kind} is not async"  # noqa: S101 - `awaits` has said so
        with log_context(task):
            is_asked_for = task.payload_json.startswith(SEALED) or is_notification(task.id)  # its key may be KMS's
            opened = await LOOP.on_thread(self._open, task) if is_asked_for else self._open(task)
            if isinstance(opened, Settlement):
                return opened
            try:
                outcome = await kind(opened)
                # The table keeps a result, and is away from here.
                is_kept = self._results is not None and isinstance(outcome, Done) and outcome.result is not None
                settle = partial(self.settlement, opened, outcome)
                end = await LOOP.on_thread(settle) if is_kept else settle()
            except BaseException as error:  # noqa: BLE001 a handler may raise anything, SystemExit too
                end = self._failed(opened, task, error)
            return _without_secrets(end, opened, task) if end.detail else end

    def _open(self, task: Task) -> Task | Settlement:
        """The task without its seal, or the end of its lease where that cannot be opened."""
        try:
            return self._opened(task) if self._opened else task
        except (SealBroken, TaskDamaged) as error:
            return self._drop(task, Drop(str(error)))
        except (StoreUnavailable, StoreMisused) as error:
            return postpone(task, self._rng, str(error))

    def _failed(self, task: Task, kept: Task, error: BaseException) -> Settlement:
        """End of the lease of an opened task, `kept` with its seal, whose handler raised this."""
        match error:
            case TaskDamaged():
                return self._drop(task, Drop(str(error)))
            case Crowded():
                return self.later(task, str(error))
            case SecretUnavailable():
                log.warning("task %s waits: %s", task.id, error)
                return postpone(task, self._rng, str(error))
            case RunCancelled():
                if error.__cause__:
                    _log(task, error.__cause__, credential_words(task, kept))
                return interrupted(task, str(error))
        _log(task, error, credential_words(task, kept))
        end = self._retry(task, Retry(error=_text_of(error)))
        return end._replace(detail=with_place(end.detail, place_of(error)))

    def _unknown(self, task: Task) -> Settlement:
        """Release a task for a process that has its kind; drop a notification whose target is no longer set."""
        why = f"nothing here runs the kind {task.kind!r}"
        return self._drop(task, Drop(why)) if is_notification(task.id) else postpone(task, self._rng, why)

    def later(self, task: Task, why: str) -> Settlement:
        """Release a task for a moment, without a run: other tasks of its tenant keep the process busy."""
        return release(task)._replace(delay_ms=self._rng.randint(*CROWDED_MS), detail=release_detail(task, why))

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
        """Write the result to its table, before the lease ends; returns the end of the lease."""
        # After a crash between the two, the task runs again, and overwrites the result. A poll's null is written too:
        # it is an answer. Where a higher fence has written, the lease is lost, and the settle is stale.
        try:
            results.put(task, result, self._now())
        except ResultsUnavailable as error:
            log.warning("task %s waits because its result could not be stored: %s", task.id, error)
            return postpone(task, self._rng, f"the result could not be stored: {error}")
        # The ledger names the table, for programs that do not know it. A query's answer is looked for there anyway.
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
        if task.kind in URL_KINDS and task.attempt >= QUICK_ATTEMPTS:
            delay_ms = max(delay_ms, LEAST_BACKOFF_MS)
        detail = cut_detail(str(retry.error))
        return Settlement.of(task, Ending.RETRY, delay_ms=delay_ms, state=_state(retry.state), detail=detail)

    def _drop(self, task: Task, drop: Drop) -> Settlement:
        return Settlement.of(task, Ending.DROP, detail=cut_detail(str(drop.reason)))


def release(task: Task) -> Settlement:
    """Release a task that was not started."""
    return Settlement.of(task, Ending.RELEASE, detail=release_detail(task))


def postpone(task: Task, rng: random.Random, why: str) -> Settlement:
    """Release a task for a while, because a service that it needs is away; its log says why."""
    last = task.log[-1] if task.log else None
    given_back = last.times if isinstance(last, Run) and last.outcome == Ending.RELEASE else 0
    times = max(task.run, given_back + 1)  # a delivery that is given back was no run
    return release(task)._replace(delay_ms=backoff.delay_ms(AWAY, times, rng), detail=release_detail(task, why))


def _without_secrets(end: Settlement, opened: Task, kept: Task) -> Settlement:
    """The end of a lease, its detail without the credentials of the task."""
    return end._replace(detail=strip_secrets(end.detail, credential_words(opened, kept)))


def credential_words(opened: Task, kept: Task) -> list[str]:
    """Words of a task's credentials: those that the ledger has sealed, or that a view hides of a task in clear."""
    if opened is not kept:
        return secret_words(opened.payload_json, kept.payload_json)
    hidden = hidden_in(opened.payload_json, opened.kind)
    return secret_words(opened.payload_json, dump_json(hidden.shown)) if hidden else []


def _log(task: Task, error: BaseException, words: Sequence[str]) -> None:
    """Log the traceback, without these words, for the authors of the code; the ledger keeps the error's last line."""
    if isinstance(error, CallFailed):
        return
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    place = f"{Path(frame.f_code.co_filename).name}, line {line}"
    shown = _without_credentials(error, words)
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


def _without_credentials(error: BaseException, words: Sequence[str]) -> Exception:
    """Replace an error for the log: of the same name, without credentials, in a text that any log can write."""
    _, _, text = _text_of(error).partition(": ")
    of = type(error)
    # By its module too: a traceback would name this one, which has no such class.
    named: type[Exception] = type(of.__name__, (Exception,), {"__module__": of.__module__})
    return named(cut_detail(strip_secrets(text, words)))


def _text_of(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


def _state(value: Json) -> str | None:
    return None if value is None else dump_state(value)
