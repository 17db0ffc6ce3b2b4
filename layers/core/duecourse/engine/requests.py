"""A request that carries a key is done once, and answered the same each time it is sent."""

import logging
import secrets
from collections.abc import Callable

from duecourse.errors import InvalidInput, KeyInUse, KeyReused, StoreUnavailable
from duecourse.ports.repeats import Repeats, Sent, Standing

log = logging.getLogger("duecourse.requests")

Do = Callable[[int], bytes]
"""Does a request and answers it; told since when (epoch ms) it may have been done in part, 0 where it is new."""
SKEW_MS = 1_000
"""How far the clock of the server that has the tasks may be behind that of the one that has the requests."""
Told = Callable[[BaseException], bytes | None]
"""What an error is answered with, where that is to stay; None for a fault, after which the same may be tried again."""


class Requests:
    """The requests that carry a key."""

    def __init__(self, repeats: Repeats) -> None:
        self._repeats = repeats

    def once(self, sent: Sent, lock_ms: int, do: Do, told: Told) -> bytes:
        """Answer of `do`, or the stored answer if this request was sent before.

        It has `lock_ms` for it; raises what it raises, and KeyReused, KeyInUse, StoreUnavailable. What InvalidInput
        refuses was never begun: the key is free again.
        """
        owner = secrets.token_bytes(8)
        claimed = self._repeats.begin(sent, owner, lock_ms)
        if claimed.standing is Standing.OTHER:
            raise KeyReused
        if claimed.standing is Standing.UNDER_WAY:
            raise KeyInUse(claimed.left_ms)
        if claimed.standing is Standing.ENDED:
            return claimed.answer
        try:
            answer = do(max(1, claimed.begun_at - SKEW_MS) if claimed.standing is Standing.AGAIN else 0)
        except InvalidInput:
            self._end(lambda: self._repeats.forget(sent, owner))
            raise
        except BaseException as error:
            refusal = told(error)
            self._end(lambda: self._close(sent, owner, refusal))
            raise
        self._end(lambda: self._close(sent, owner, answer))
        return answer

    def _close(self, sent: Sent, owner: bytes, answer: bytes | None) -> bool:
        if answer is None:
            return self._repeats.release(sent, owner)
        return self._repeats.end(sent, owner, answer)

    def _end(self, end: Callable[[], bool]) -> None:
        try:
            if not end():
                log.warning("a request outlived its time limit, and another request has taken its Idempotency-Key")
        except StoreUnavailable:  # what was done is done, and told; its key is free when its time is over
            log.warning("the answer to a request with an Idempotency-Key could not be stored", exc_info=True)
