"""Lateness of runs, from due time to handler, as counts in buckets that grow with it: histograms that add up."""

from collections import Counter
from collections.abc import Iterable, Mapping

SLOT_MS = 300_000
"""Length of one slot of the histogram; older slots are overwritten."""
SLOTS = 13
"""Number of slots: those of the last hour, and the current one."""
PARTS = 8
"""Number of buckets for each doubling of the lateness: a bucket spans 12 %, and below 16 ms it is exact."""


def latest_in(bucket: int) -> int:
    """The longest lateness that a bucket counts, in whole milliseconds."""
    if bucket < PARTS:
        return 0
    exponent, part = divmod(bucket, PARTS)
    edge = (0.5 + (part + 1) / (2 * PARTS)) * 2.0**exponent
    return int(edge) - 1 if edge == int(edge) else int(edge)


def added_up(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """One histogram of several: how many were as late as each bucket says."""
    total = Counter[int]()
    for histogram in histograms:
        total.update(histogram)
    return total


def quantile(histogram: Mapping[int, int], share: float) -> int | None:
    """The lateness that `share` of all did not exceed, rounded up to its bucket's end; None where there is none."""
    rank = share * sum(histogram.values())
    reached = 0
    for bucket, count in sorted(histogram.items()):
        reached += count
        if reached >= rank:
            return latest_in(bucket)
    return None
