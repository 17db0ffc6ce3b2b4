"""Length of the lease of a task that a function works: never much longer than that function."""

STEP_MS = 30_000
"""Length of a lease that is extended: a function that dies keeps its tasks no longer than this."""
STEPS = 3
"""Number of extensions within a lease's length."""
GRACE_MS = 5_000
"""Time by which a lease outlasts its function: Lambda's record of the failure comes first, then the lapse."""


def lease_within(wanted_ms: int, remaining_ms: float) -> int:
    """Length of a lease (ms): as wanted, but not much longer than its function has time."""
    return max(1, int(min(wanted_ms, remaining_ms + GRACE_MS)))
