"""Delay before the next attempt."""

import random

from duecourse.domain.task import RetryPolicy


def ceiling_ms(policy: RetryPolicy, attempt: int) -> int:
    """The longest wait after the `attempt`-th attempt failed (1-based): backoff x factor^(attempt-1), capped."""
    exponent = min(attempt - 1, 64)
    try:
        wait = policy.backoff_ms * policy.factor**exponent
    except OverflowError:
        return policy.max_backoff_ms
    return int(min(wait, policy.max_backoff_ms))


def delay_ms(policy: RetryPolicy, attempt: int, rng: random.Random) -> int:
    """The wait in milliseconds: uniform in [0, ceiling] with jitter, the ceiling without.

    Full jitter as in Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """
    longest = ceiling_ms(policy, attempt)
    return rng.randint(0, longest) if policy.jitter else longest
