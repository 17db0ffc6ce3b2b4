"""The kind `webhook`: delivers a signed JSON body until the address takes it."""

import time
from collections.abc import Callable
from typing import TypeAlias

from duecourse.calls.request_and_answer import describe, retry_after, seconds, to_request
from duecourse.errors import CallFailed, InvalidInput
from duecourse.guard.http_types import HttpAnswer, HttpCaller, HttpRequest
from duecourse.guard.signing_secrets import Secrets
from duecourse.ledger.task import DEFAULT_QUEUE, DEFAULT_TENANT, Done, Drop, Outcome, Retry, Task
from duecourse.webhooks import ID, SIGNATURE, TIMESTAMP, sign

# Signatures of what duecourse delivers, by the secrets of its tenant.


class Signing:
    """Signs requests by the secrets that `secrets` answers at each; where there is none for a tenant, its are unsigned.

    Raises SecretUnavailable.
    """

    def __init__(self, secrets: Callable[[], Secrets]) -> None:
        self._secrets = secrets

    def __call__(self, tenant: str, request: HttpRequest) -> HttpRequest:
        """The request with its signature, which is of its body as it is sent."""
        known = self._secrets()
        secrets = known.get(tenant) or known.get(DEFAULT_TENANT)
        if not secrets:
            return request
        headers = request.headers
        signature = sign(headers[ID], int(headers[TIMESTAMP]), request.body or b"", secrets)
        return request._replace(headers={**headers, SIGNATURE: signature})


# The kind `webhook`: delivers a JSON body to an address until the address takes it.

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
    `webhook-timestamp` is the time of this attempt's claim, in seconds. A task that was handed over does not know it,
    and takes `now` (epoch ms). `sign` adds the signature.

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
