"""The buckets of the histogram of lateness, as lua/modules/durations.lua counts them."""

from math import frexp

from duecourse.ledger.queue import PARTS


def bucket_of(late_ms: int) -> int:
    """The bucket of a lateness."""
    if late_ms <= 0:
        return 0
    fraction, exponent = frexp(late_ms)
    return exponent * PARTS + int((fraction - 0.5) * 2 * PARTS)
