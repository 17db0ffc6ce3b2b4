"""How waits grow, and where they end."""

import random

from hypothesis import given
from hypothesis import strategies as st

from duecourse.ledger.task import RetryPolicy, ceiling_ms, delay_ms

POLICIES = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 1_000),
    backoff_ms=st.integers(0, 86_400_000),
    factor=st.floats(1.0, 100.0),
    max_backoff_ms=st.integers(0, 86_400_000 * 30),
    jitter=st.booleans(),
)


def test_without_jitter_the_waits_double_up_to_the_longest() -> None:
    policy = RetryPolicy(backoff_ms=1_000, factor=2.0, max_backoff_ms=10_000, jitter=False)
    waits = [delay_ms(policy, attempt, random.Random(0)) for attempt in range(1, 7)]
    assert waits == [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]


def test_a_factor_of_one_keeps_the_wait_the_same() -> None:
    policy = RetryPolicy(backoff_ms=700, factor=1.0)
    assert {ceiling_ms(policy, attempt) for attempt in range(1, 2_000)} == {700}


def test_a_factor_that_no_float_can_hold_ends_at_the_longest_wait() -> None:
    assert ceiling_ms(RetryPolicy(factor=1e300), 3) == RetryPolicy().max_backoff_ms


def test_full_jitter_uses_the_whole_range() -> None:
    policy, rng = RetryPolicy(backoff_ms=1_000), random.Random(7)
    waits = [delay_ms(policy, 1, rng) for _ in range(2_000)]
    assert min(waits) < 20
    assert max(waits) > 980
    assert 450 < sum(waits) / len(waits) < 550


@given(POLICIES, st.integers(1, 10_000), st.integers())
def test_a_wait_is_never_longer_than_its_ceiling_nor_that_than_the_longest(
    policy: RetryPolicy, attempt: int, seed: int
) -> None:
    wait, ceiling = delay_ms(policy, attempt, random.Random(seed)), ceiling_ms(policy, attempt)
    assert 0 <= wait <= ceiling <= policy.max_backoff_ms
    assert isinstance(wait, int)


@given(POLICIES, st.integers(1, 1_000))
def test_a_later_attempt_never_waits_for_less(policy: RetryPolicy, attempt: int) -> None:
    assert ceiling_ms(policy, attempt) <= ceiling_ms(policy, attempt + 1)
