"""Requests and their answers on Redis: one hash and one sorted set under a hash tag of their own, without TTL."""

from typing import Any

from duecourse.adapters.redis.arguments import Argument
from duecourse.adapters.redis.keys import requests_keys
from duecourse.adapters.redis.scripts import Scripts
from duecourse.ports.idempotency import KEPT_MS, PRUNE, KeyedRequest, RequestState, SavedResponse

STATES = {
    0: RequestState.FRESH,
    1: RequestState.AGAIN,
    -1: RequestState.UNDER_WAY,
    -2: RequestState.ENDED,
    -3: RequestState.OTHER,
    -4: RequestState.OVER,
}


class RedisIdempotency:
    """The requests that were begun (ports.idempotency.IdempotencyStore), beside a ledger on the same client.

    `wait` is the number of replicas that must have a request that is begun, and its answer.
    """

    def __init__(self, scripts: Scripts, namespace: str, wait: int = 0) -> None:
        self._scripts = scripts
        self._keys = requests_keys(namespace)
        self._wait = wait

    def begin(self, sent: KeyedRequest, owner: bytes, lock_ms: int) -> SavedResponse:
        """See IdempotencyStore."""
        arguments = (self._scripts.clock(), _field(sent), sent.fingerprint, owner, lock_ms, KEPT_MS, sent.max_bytes)
        code, answer, left_ms, begun_at = self._run("begin", *arguments, replicas=self._wait)
        state = STATES[code]
        if state is RequestState.AGAIN:
            return SavedResponse(state, b"", left_ms, begun_at, answer)
        return SavedResponse(state, answer, left_ms, begun_at)

    def note(self, sent: KeyedRequest, owner: bytes, note: bytes) -> bool:
        """See IdempotencyStore."""
        return self._end(sent, owner, b"N" + note, replicas=self._wait)

    def end(self, sent: KeyedRequest, owner: bytes, answer: bytes) -> bool:
        """See IdempotencyStore."""
        return self._end(sent, owner, b"A" + answer, replicas=self._wait)

    def release(self, sent: KeyedRequest, owner: bytes) -> bool:
        """See IdempotencyStore."""
        return self._end(sent, owner, b"U")

    def forget(self, sent: KeyedRequest, owner: bytes) -> bool:
        """See IdempotencyStore."""
        return self._end(sent, owner, b"X")

    def prune(self) -> int:
        """See IdempotencyStore."""
        return int(self._run("forget", self._scripts.clock(), KEPT_MS, PRUNE))

    def _end(self, sent: KeyedRequest, owner: bytes, state: bytes, *, replicas: int = 0) -> bool:
        arguments = (self._scripts.clock(), _field(sent), sent.fingerprint, owner, state, KEPT_MS, sent.max_bytes)
        return bool(self._run("end", *arguments, replicas=replicas))

    def _run(self, name: str, *arguments: Argument, replicas: int = 0) -> Any:
        return self._scripts.evaluate(name, (len(self._keys), (*self._keys, *arguments)), replicas=replicas)


def _field(sent: KeyedRequest) -> str:
    return f"{sent.tenant}/{sent.key}"
