"""The kind `poll`: asks an address again and again until its answer says that it is done."""

import gc
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain
from typing import NamedTuple, NoReturn

from duecourse.base.cpu_turns import WAIT_S, Computation, Turns
from duecourse.base.json_text import MAX_DEPTH, Json, dump_json
from duecourse.calls.jmespath_eval import MAX_CPU_S, NotApplicable, Search, TooMuchWork, compiled, is_true
from duecourse.calls.request_and_answer import describe, duration_ms, retry_after, seconds, text, to_request
from duecourse.errors import CallCutOff, CallFailed, CallTimedOut, FieldError, InvalidInput
from duecourse.guard.http_types import HttpAnswer, HttpCaller, HttpRequest
from duecourse.guard.jmespath_check import WrongExpression
from duecourse.ledger.api_query import LEAST_INTERVAL_MS
from duecourse.ledger.task import MAX_RESULT_BYTES, Again, Done, Drop, Outcome, Retry, Task

MAX_ANSWER_BYTES = 1024 * 1024
LARGE_BYTES = 256 * 1024
"""Size from which an answer is decoded in turn: one of 1 MiB takes 15 ms, and 30 MB of memory."""
NOT_YET = frozenset({202, 204})
"""Answers that need no body to say: not yet."""
PERMANENT = frozenset({400, 401, 403, 405, 406, 410, 411, 413, 414, 415, 422, 451})
"""Statuses that the same request will meet again."""
CREDENTIAL_REJECTED = frozenset({401, 403})
"""Those that a credential by name may yet turn: it may have been changed, or be about to be."""
_COLLECTOR = threading.Lock()
"""Held while Python's collector is off: there is one in a process."""


class PollPlan(NamedTuple):
    """Plan of a poll: the request, and the JMESPath of `until`, `failed_when` and `result`."""

    request: HttpRequest
    interval_ms: int
    until: str
    failed_when: str | None
    result: str | None


class Poll:
    """Polls payload {url, method?="GET", headers?, auth?, body?, interval, timeout?, until, failed_when?, result?}.

    | answer | outcome |
    | --- | --- |
    | 2xx with JSON, `failed_when` true | Drop |
    | 2xx with JSON, `until` true | Done with `result`, else the whole answer; at most 64 KiB and 100 deep |
    | 2xx with any other JSON; 202 and 204 without | Again after the interval, or after a longer Retry-After |
    | 400, 401, 403, 405, 410, 422 and the others of PERMANENT | Drop; with `auth`, Retry after 401 and 403 |
    | none, 5xx, 408, 429, a redirect, 404, 425, no JSON, over 1 MiB | Retry, after Retry-After if given |

    404 and 425 are Retry because the resource may not exist yet. An answer to which an expression cannot be applied is
    Retry too; a payload that can never be sent or judged is Drop. True is what JMESPath calls true: not false, null or
    empty. A call that was cut off because time was short is repeated at once, no attempt spent. Answers that take long
    to judge are judged one at a time, by `turns`.
    """

    def __init__(
        self, http: HttpCaller, timeout_ms: int, turns: Turns | None = None, least_interval_ms: int = LEAST_INTERVAL_MS
    ) -> None:
        self._http = http
        self._timeout_ms = timeout_ms
        self._least_interval_ms = least_interval_ms
        self._turns = turns or Turns()

    def __call__(self, task: Task) -> Outcome:
        """Ask once. Raises Crowded, before the call or after it, while the tenant's answers wait to be judged."""
        self._turns.admit(task.tenant)
        try:
            plan = _plan(task, self._timeout_ms, self._least_interval_ms)
            answer = self._http.call(plan.request)
            with self._turns.computing(task.tenant, MAX_CPU_S, WAIT_S) as computation:
                return _judge(plan, answer, task.claimed_at, computation)
        except InvalidInput as error:
            return Drop(str(error))
        except CallCutOff:
            return Again(after=0)
        except CallFailed as error:
            return Retry(error=str(error))


class DeadlineCaller:
    """Calls as `http` does, each within `left_ms`.

    Raises CallCutOff, in place of CallTimedOut, for a call whose own time was not over by then.
    """

    def __init__(self, http: HttpCaller, left_ms: int) -> None:
        self._http = http
        self._left_ms = left_ms

    def call(self, request: HttpRequest) -> HttpAnswer:
        """Send one request, once."""
        if request.timeout_ms <= self._left_ms:
            return self._http.call(request)
        try:
            return self._http.call(request._replace(timeout_ms=self._left_ms))
        except CallTimedOut as error:
            raise CallCutOff from error


def _plan(task: Task, timeout_ms: int, least_ms: int) -> PollPlan:
    payload = task.payload
    request = to_request(
        payload, "GET", timeout_ms, tenant=task.tenant, max_bytes=MAX_ANSWER_BYTES, fixed={}, text_as_is=True
    )
    return PollPlan(
        request,
        max(duration_ms(payload, "interval"), least_ms),  # the setting may have grown since the add
        _expression(payload, "until"),
        payload.get("failed_when") and _expression(payload, "failed_when"),
        payload.get("result") and _expression(payload, "result"),
    )


def _expression(payload: dict[str, Json], field: str) -> str:
    expression = text(payload, field)
    try:
        compiled(expression)
    except WrongExpression as error:
        raise InvalidInput([FieldError(f"payload.{field}", str(error))]) from None
    return expression


def _judge(plan: PollPlan, answer: HttpAnswer, called_at: int, computation: Computation) -> Outcome:
    wait = retry_after(answer, called_at)
    if not 200 <= answer.status < 300:
        return _rejected(plan, answer, wait)
    large = len(answer.body) >= LARGE_BYTES
    if large:
        computation.take_turn()
    try:
        with _collecting_no_garbage() if large else nullcontext():
            found = _decoded(answer)
    except ValueError as error:
        if answer.status in NOT_YET:
            return _again(plan, wait)
        return Retry(after=seconds(wait), error=f"{describe(plan.request, answer)} ({error})")
    try:
        return _decide(plan, answer, Search(found, computation), wait)
    except (WrongExpression, TooMuchWork) as error:
        return Drop(f"an expression is wrong: {error}")
    except NotApplicable as error:
        return Retry(after=seconds(wait), error=f"{describe(plan.request, answer)} ({error})")


@contextmanager
def _collecting_no_garbage() -> Iterator[None]:
    """Keep the collector from going over each new list again and again: most of the time that an answer of 1 MiB took.

    Text that becomes values makes no circles.
    """
    with _COLLECTOR:
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()


def _rejected(plan: PollPlan, answer: HttpAnswer, wait: int | None) -> Outcome:
    if answer.status in PERMANENT and not (plan.request.auth and answer.status in CREDENTIAL_REJECTED):
        return Drop(describe(plan.request, answer))
    return Retry(after=seconds(wait), error=describe(plan.request, answer))


def _decoded(answer: HttpAnswer) -> Json:
    if not answer.whole:
        raise ValueError("the answer is over 1 MiB")
    try:
        return json.loads(answer.body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ValueError("the answer is not JSON") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _decide(plan: PollPlan, answer: HttpAnswer, search: Search, wait: int | None) -> Outcome:
    if plan.failed_when and is_true(search.find(plan.failed_when)):
        return Drop(f"failed_when holds: {describe(plan.request, answer)}")
    if is_true(search.find(plan.until)):
        return _done(search.find(plan.result or "@"))
    return _again(plan, wait)


def _again(plan: PollPlan, wait: int | None) -> Again:
    return Again(after=max(plan.interval_ms, wait or 0) / 1000)


def _done(result: Json) -> Outcome:
    problem = _problem_of(result)
    if problem:
        return Drop(f"the result {problem}: narrow it by `result`")
    try:
        size = len(dump_json(result).encode())
    except (TypeError, ValueError):
        return Drop("the result cannot be kept as JSON")
    if size > MAX_RESULT_BYTES:
        return Drop(f"the result has {size} bytes, and at most {MAX_RESULT_BYTES} are kept: narrow it by `result`")
    return Done(result)


def _problem_of(result: Json) -> str:
    """Reason why a result is not even written out, or "": it may hold one part so often that it would never end."""
    waiting, size = [(result, 0)], 0
    while waiting:
        value, depth = waiting.pop()
        if depth > MAX_DEPTH:
            return f"nests deeper than {MAX_DEPTH}"
        size += _size_of(value)
        if size > MAX_RESULT_BYTES:
            return f"is over {MAX_RESULT_BYTES // 1024} KiB"
        if isinstance(value, dict):
            waiting += [(item, depth + 1) for item in chain(value, value.values())]
        elif isinstance(value, list):
            waiting += [(item, depth + 1) for item in value]
    return ""


def _size_of(value: Json) -> int:
    """Minimum size of a value's own JSON text, about."""
    if isinstance(value, str | list | dict):
        return len(value)
    # A whole number may have thousands of digits, of three bits and a little each.
    return max(value.bit_length() // 3, 1) if isinstance(value, int) else 1
