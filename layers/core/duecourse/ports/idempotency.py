"""Records of requests with an Idempotency-Key, so that a request sent twice is done once."""

from enum import StrEnum
from typing import NamedTuple, Protocol

from duecourse.domain.times import DAY_MS

KEPT_MS = DAY_MS
"""Time for which a request is remembered, from its first begin."""
PRUNE = 500
"""Number of requests that one step forgets."""


class RequestState(StrEnum):
    """State of a request before this begin."""

    FRESH = "fresh"
    """Nobody began it: it is the caller's."""
    AGAIN = "again"
    """Another process began the request and failed: the caller has it now, and may find it done."""
    UNDER_WAY = "under_way"
    """Another has it now."""
    ENDED = "ended"
    """The request was answered."""
    OTHER = "other"
    """The key belongs to another request."""
    OVER = "over"
    """Nobody began it, and its tenant has used up what it may have kept."""


class SavedResponse(NamedTuple):
    """State of a request: its answer if it has ended; the time (ms) to wait, for another process or for the quota.

    `begun_at` is when it was first begun (epoch ms), where it was and is the caller's now. `note` is then what an
    earlier try noted, b"" for nothing.
    """

    state: RequestState
    answer: bytes = b""
    left_ms: int = 0
    begun_at: int = 0
    note: bytes = b""


class KeyedRequest(NamedTuple):
    """A request as it was sent: whose, its key, and 32 bytes that tell it from any other.

    `max_bytes` is its tenant's quota of requests and answers that are kept, 0 for none.
    """

    tenant: str
    key: str
    fingerprint: bytes
    max_bytes: int = 0


class IdempotencyStore(Protocol):
    """The requests that were begun, each for KEPT_MS; every verb is one step and raises StoreUnavailable."""

    def begin(self, sent: KeyedRequest, owner: bytes, lock_ms: int) -> SavedResponse:
        """Take a request for `owner` (8 bytes) unless it has ended, or another has it, each for its own `lock_ms`.

        The same owner again gets the same answer. A tenant may have as much kept as its quota says, and as much again
        in each KEPT_MS. The answer to a request that was begun is kept, however large it is.
        """

    def note(self, sent: KeyedRequest, owner: bytes, note: bytes) -> bool:
        """Note what the owner saw, for every later try of the request; False where it is not the owner's any more."""

    def end(self, sent: KeyedRequest, owner: bytes, answer: bytes) -> bool:
        """Keep the answer; False where the request is not the owner's any more."""

    def release(self, sent: KeyedRequest, owner: bytes) -> bool:
        """Give the request back unanswered: the same may be sent again at once, under this key no other."""

    def forget(self, sent: KeyedRequest, owner: bytes) -> bool:
        """Forget the request: its key is free."""

    def prune(self) -> int:
        """Forget what is older than KEPT_MS, at most PRUNE of it; answers how many those were."""
