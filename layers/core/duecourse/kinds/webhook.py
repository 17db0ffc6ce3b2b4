"""The kind `webhook`: delivers a JSON body to an address until the address takes it."""

from duecourse.domain.outcomes import Done, Drop, Outcome, Retry
from duecourse.domain.task import Task
from duecourse.errors import CallFailed, InvalidInput
from duecourse.kinds.calls import describe, retry_after, seconds, to_request
from duecourse.ports.http import HttpAnswer, HttpCaller, HttpRequest

ANSWER_BYTES = 4_096
"""Maximum size of an answer that is read: enough for an error's text."""


class Webhook:
    """Sends payload {url, method?="POST", headers?, body?, timeout?} in the manner of Standard Webhooks.

    `webhook-id` is the task's idempotency key, the same at every attempt. `webhook-timestamp` is the claim of this
    attempt, in seconds. 2xx is Done({"status": …}). 410 Gone is Drop, as is a payload that can never be sent. Anything
    else is Retry, redirects too, after the answer's Retry-After if it has one.
    """

    def __init__(self, http: HttpCaller, timeout_ms: int) -> None:
        self._http = http
        self._timeout_ms = timeout_ms

    def __call__(self, task: Task) -> Outcome:
        """One attempt at delivery."""
        try:
            request = self._request(task)
            answer = self._http.call(request)
        except InvalidInput as error:
            return Drop(str(error))
        except CallFailed as error:
            return Retry(error=str(error))
        return _judge(request, answer, task.claimed_at)

    def _request(self, task: Task) -> HttpRequest:
        marks = {"webhook-id": task.idempotency_key, "webhook-timestamp": str(task.claimed_at // 1000)}
        return to_request(task.payload, "POST", self._timeout_ms, max_bytes=ANSWER_BYTES, fixed=marks)


def _judge(request: HttpRequest, answer: HttpAnswer, called_at: int) -> Outcome:
    if 200 <= answer.status < 300:
        return Done({"status": answer.status})
    if answer.status == 410:
        return Drop(describe(request, answer))
    return Retry(after=seconds(retry_after(answer, called_at)), error=describe(request, answer))
