"""A request that carries a key is done once, and answered the same each time it is sent."""

import logging
import secrets
from collections.abc import Callable

from duecourse.domain.idempotency import KeyedTry
from duecourse.errors import InvalidInput, KeyInUse, KeyReused, QuotaExceeded, StoreMisused, StoreUnavailable
from duecourse.ports.idempotency import IdempotencyStore, KeyedRequest, RequestState

log = logging.getLogger("duecourse.requests")

QUOTA = "tenant_max_bytes"
"""Quota of a deployment that bounds the answers of each tenant, too."""
SKEW_MS = 1_000
"""Maximum lag of the clock of the server with the tasks behind that of the one with the requests."""
Saved = Callable[[BaseException], bytes | None]
"""Answer to keep for an error; None for a fault, after which the same request may be tried again."""


Do = Callable[[KeyedTry], bytes]
"""Does a request and answers it."""


class Idempotency:
    """The requests that carry a key."""

    def __init__(self, store: IdempotencyStore) -> None:
        self._store = store

    def answer(self, sent: KeyedRequest, lock_ms: int, do: Do, saved: Saved) -> bytes:
        """Answer of `do`, or the stored answer if this request was sent before.

        `do` has `lock_ms`. Raises what `do` raises, and KeyReused, KeyInUse, StoreUnavailable; and QuotaExceeded for a
        new request whose tenant has used up what it may have kept. A request that InvalidInput or QuotaExceeded rejects
        at its first try was never begun: the key is free again.
        """
        owner = secrets.token_bytes(8)
        claimed = self._store.begin(sent, owner, lock_ms)
        if claimed.state is RequestState.OTHER:
            raise KeyReused
        if claimed.state is RequestState.UNDER_WAY:
            raise KeyInUse(claimed.left_ms)
        if claimed.state is RequestState.OVER:
            raise QuotaExceeded(QUOTA, claimed.left_ms)
        if claimed.state is RequestState.ENDED:
            return claimed.answer
        since = max(1, claimed.begun_at - SKEW_MS) if claimed.state is RequestState.AGAIN else 0
        seed = f"{sent.tenant}\0{sent.key}\0{sent.fingerprint.hex()}"
        this = KeyedTry(seed, since, claimed.note, lambda note: self._store.note(sent, owner, note))
        try:
            answer = do(this)
        except (InvalidInput, QuotaExceeded):
            # An earlier try may have done it, before a time passed or a quota was full: that must stay known.
            is_new = claimed.state is RequestState.FRESH
            self._end(lambda: (self._store.forget if is_new else self._store.release)(sent, owner))
            raise
        except BaseException as error:
            rejection = saved(error)
            if rejection is None:
                self._end(lambda: self._store.release(sent, owner))
            else:
                self._end(lambda: self._store.end(sent, owner, rejection))
            raise
        self._end(lambda: self._store.end(sent, owner, answer))
        return answer

    def _end(self, end: Callable[[], bool]) -> None:
        try:
            if not end():
                log.warning("a request outlived its time limit, and another request has taken its Idempotency-Key")
        except (
            StoreUnavailable,
            StoreMisused,
        ):  # the request is done and answered all the same; its key is free when its time is over
            log.warning("the answer to a request with an Idempotency-Key could not be stored", exc_info=True)
