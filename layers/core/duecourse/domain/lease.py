"""Length of the lease of a task that a function works: never much longer than that function."""

STEP_MS = 30_000
"""Length of a lease that is extended: a function that dies keeps its tasks no longer than this."""
STEPS = 3
"""Number of extensions within a lease's length."""
GRACE_MS = 5_000
"""Time by which a lease outlasts its function: Lambda's record of the failure comes first, then the lapse."""


def longest_lease(remaining_ms: int) -> int:
    """The longest that a lease may last whose function has so much time left, in milliseconds."""
    return max(1, remaining_ms + GRACE_MS)
