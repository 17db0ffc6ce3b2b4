"""The time of a lingering tick: as long as was asked for, never into the margin, and no longer by a clock set back."""

import itertools

import pytest

from duecourse.ringing.linger import LingerTime
from tests.support.lingering import countdown
from tests.support.wait import until

MARGIN_MS = 1_000


def test_a_stay_is_as_long_as_was_asked_for() -> None:
    stay = LingerTime(countdown(60), linger_ms=20_000, margin_ms=MARGIN_MS)
    assert 19_900 < stay.left_ms() <= 20_000


def test_a_stay_leaves_the_margin_of_a_shorter_timeout_alone() -> None:
    stay = LingerTime(countdown(5), linger_ms=60_000, margin_ms=MARGIN_MS)
    assert 3_900 < stay.left_ms() <= 4_000


def test_time_that_was_slept_through_counts() -> None:
    """A suspended process finds its time gone when it comes back."""
    times = iter([60_000, 60_000, 5_000])
    stay = LingerTime(lambda: next(times), linger_ms=40_000, margin_ms=MARGIN_MS)
    assert (stay.left_ms() > 39_000, stay.left_ms() <= 0) == (True, True)


def test_a_clock_that_is_set_back_does_not_lengthen_it() -> None:
    """What Lambda says is left goes by the clock of its machine."""
    times = itertools.count(20_000, 1_000)
    stay = LingerTime(lambda: next(times), linger_ms=50, margin_ms=MARGIN_MS)
    until(lambda: stay.left_ms() <= 0, seconds=2)


@pytest.mark.parametrize(("left_s", "told"), [(15, True), (18.5, False), (30, False)])
def test_one_that_cannot_be_as_long_as_it_should_says_what_to_change(
    caplog: pytest.LogCaptureFixture, left_s: float, told: bool
) -> None:
    LingerTime(countdown(left_s), linger_ms=20_000, margin_ms=MARGIN_MS)
    assert ("DUECOURSE_TICK_LINGER" in caplog.text) is told
