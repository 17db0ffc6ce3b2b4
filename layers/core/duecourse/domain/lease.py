"""Lease of a task that a function works: its length, and the invocation that began it."""

from hashlib import sha256

STEP_MS = 30_000
"""Length of a lease that is extended: a function that dies keeps its tasks no longer than this."""
STEPS = 3
"""Number of extensions within a lease's length."""
GRACE_MS = 5_000
"""Time by which a lease outlasts its function: Lambda's record of the failure comes first, then the lapse."""


def lease_within(wanted_ms: int, remaining_ms: float) -> int:
    """Length of a lease (ms): as wanted, but not much longer than its function has time."""
    return max(1, int(min(wanted_ms, remaining_ms + GRACE_MS)))


HALF = 4
"""Bytes of a begun lease's nonce that name its invocation, and as many that are its worker's own."""


def begin_nonce(delivery: str, invocation: str, own: bytes) -> bytes:
    """Nonce with which an invocation begins the delivery with this token.

    `invocation` is Lambda's id of the request, "" where it is not known. The same worker begins again with the same
    `own`, of which the first four bytes count.
    """
    # Half of it is the worker's own, for Lambda gives a second delivery of one event the same id as the first.
    return sha256(f"{delivery}\0{invocation}".encode()).digest()[:HALF] + own[:HALF]


def was_begun_by(token: str, delivery: str, invocation: str) -> bool:
    """True if this invocation may have begun the lease with this token; a lease may name no invocation."""
    named = bytes.fromhex(token)[-2 * HALF : -HALF]
    return any(named == begin_nonce(delivery, one, b"") for one in (invocation, ""))
