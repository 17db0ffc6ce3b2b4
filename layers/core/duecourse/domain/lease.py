"""How long the lease of a task lasts that a function works: never much longer than that function."""

STEP_MS = 30_000
"""How long a lease lasts that is kept alive: a function that dies without a word keeps its tasks no longer."""
STEPS = 3
"""How often a lease is extended within its own length."""
GRACE_MS = 5_000
"""How long a lease outlasts its function: Lambda's record of what happened comes first, then the lease lapses."""


def longest_lease(remaining_ms: int) -> int:
    """The longest that a lease may last whose function has so much time left, in milliseconds."""
    return max(1, remaining_ms + GRACE_MS)
