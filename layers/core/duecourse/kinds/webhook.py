"""The kind `webhook`: delivers a JSON body to an address until the address takes it."""

import time
from collections.abc import Callable
from typing import TypeAlias

from duecourse.domain.outcomes import Done, Drop, Outcome, Retry
from duecourse.domain.task import DEFAULT_QUEUE, DEFAULT_TENANT, Task
from duecourse.errors import CallFailed, InvalidInput
from duecourse.kinds.calls import describe, retry_after, seconds, to_request
from duecourse.ports.http import HttpAnswer, HttpCaller, HttpRequest

ANSWER_BYTES = 4_096
"""Maximum size of an answer that is read: enough for an error's text."""


Sign: TypeAlias = Callable[[str, HttpRequest], HttpRequest]
"""Signs a request of a tenant's. Raises SecretUnavailable."""


def unsigned(_tenant: str, request: HttpRequest) -> HttpRequest:
    """The request as it is, for a deployment without secrets to sign by."""
    return request


def wall_clock_now() -> int:
    """Epoch milliseconds by the clock of this process."""
    return round(time.time() * 1000)


def webhook_id(task: Task) -> str:
    """The task's idempotency key, after its queue and tenant where one is not the default; %2E for each dot.

    Two queues count generations for themselves, so that tasks of one id may have the same key in both.
    """
    usual = (task.queue, task.tenant) == (DEFAULT_QUEUE, DEFAULT_TENANT)
    own = "" if usual else f"{task.queue}/{task.tenant}/"
    return (own + task.idempotency_key).replace(".", "%2E")


class Webhook:
    """Sends payload {url, method?="POST", headers?, auth?, body?, timeout?} in the manner of Standard Webhooks.

    `webhook-id` (`webhook_id`) is the same at every attempt. It has no dot: Standard Webhooks allows none.
    `webhook-timestamp` is the claim of this attempt, in seconds; for a task that was handed over, which does not know
    its claim, it is `now` (epoch ms). `sign` adds the signature.

    2xx is Done({"status": …}), whether or not the answer's body can be read. 410 Gone is Drop, as is a payload that can
    never be sent. Anything else is Retry, redirects too, after the answer's Retry-After if it has one.
    """

    def __init__(
        self, http: HttpCaller, timeout_ms: int, sign: Sign = unsigned, now: Callable[[], int] = wall_clock_now
    ) -> None:
        self._http = http
        self._timeout_ms = timeout_ms
        self._sign = sign
        self._now = now

    def __call__(self, task: Task) -> Outcome:
        """One attempt at delivery."""
        called_at = task.claimed_at or self._now()
        try:
            request = self._sign(task.tenant, self._request(task, called_at))
            answer = self._http.call(request)
        except InvalidInput as error:
            return Drop(str(error))
        except CallFailed as error:
            return Retry(error=str(error))
        return _judge(request, answer, called_at)

    def _request(self, task: Task, called_at: int) -> HttpRequest:
        marks = {"webhook-id": webhook_id(task), "webhook-timestamp": str(called_at // 1000)}
        request = to_request(
            task.payload, "POST", self._timeout_ms, tenant=task.tenant, max_bytes=ANSWER_BYTES, fixed=marks
        )
        return request._replace(needs_body=False)


def _judge(request: HttpRequest, answer: HttpAnswer, called_at: int) -> Outcome:
    if 200 <= answer.status < 300:
        return Done({"status": answer.status})
    if answer.status == 410:
        return Drop(describe(request, answer))
    return Retry(after=seconds(retry_after(answer, called_at)), error=describe(request, answer))
