"""The bridge's warmer by itself, on a clock moved by hand: bells that follow an idle spell, and no others."""

from collections.abc import Sequence

import pytest

from duecourse.errors import DuecourseError, InvocationRejected, StoreMisused, StoreUnavailable
from duecourse.ringing.bridge_event import MAX_WARM, read_warm_up, warm_event
from duecourse.ringing.warming import BATCH, BridgeWarmer, Warming
from tests.support.clock import HandClock

BELL, OTHER = "test:{default/0}:bell", "test:{default/1}:bell"
AHEAD_MS, IDLE_MS = 10_000, 300_000


class PendingBells:
    """What the warmer sees of a bridge's sessions."""

    def __init__(self, clock: HandClock) -> None:
        self.bells: dict[str, int] = {}
        self.now = clock.now

    def pending_bells(self) -> list[tuple[str, int]]:
        return list(self.bells.items())


class Warmed:
    """What was warmed for."""

    def __init__(self) -> None:
        self.refusal: DuecourseError | None = None
        self.events: list[list[str]] = []

    def __call__(self, bells: Sequence[str]) -> None:
        self.events.append(list(bells))
        if self.refusal:
            raise self.refusal


@pytest.fixture
def pending(clock: HandClock) -> PendingBells:
    return PendingBells(clock)


@pytest.fixture
def warmed() -> Warmed:
    return Warmed()


@pytest.fixture
def warmer(pending: PendingBells, warmed: Warmed) -> BridgeWarmer:
    return BridgeWarmer(pending, Warming(warmed, AHEAD_MS, IDLE_MS), on_end=lambda: None)  # type: ignore[arg-type]


def test_a_bell_that_never_rang_is_warmed_for_ten_seconds_before_and_once(
    warmer: BridgeWarmer, pending: PendingBells, warmed: Warmed, clock: HandClock
) -> None:
    pending.bells[BELL] = clock.at + AHEAD_MS + 1
    warmer.look()
    assert warmed.events == []
    clock.advance(1)
    warmer.look()
    clock.advance(1_000)
    warmer.look()
    assert warmed.events == [[BELL]]
    assert warmer.sent == 1


def test_a_bell_that_rang_within_the_spell_is_not_warmed_for(
    warmer: BridgeWarmer, pending: PendingBells, warmed: Warmed, clock: HandClock
) -> None:
    warmer.rang([BELL])
    pending.bells = {BELL: clock.at + IDLE_MS - 1, OTHER: clock.at + IDLE_MS}
    clock.advance(IDLE_MS - AHEAD_MS)
    warmer.look()
    assert warmed.events == [[OTHER]]


def test_a_bell_is_warmed_for_again_after_the_next_spell(
    warmer: BridgeWarmer, pending: PendingBells, warmed: Warmed, clock: HandClock
) -> None:
    for _ in range(3):
        pending.bells[BELL] = clock.at + IDLE_MS
        clock.advance(IDLE_MS - AHEAD_MS)
        warmer.look()
        clock.advance(AHEAD_MS)
        warmer.rang([BELL])
    assert warmed.events == [[BELL]] * 3


def test_a_bell_that_goes_at_once_is_not_warmed_for(
    warmer: BridgeWarmer, pending: PendingBells, warmed: Warmed, clock: HandClock
) -> None:
    pending.bells[BELL] = clock.at + 999
    warmer.look()
    assert warmed.events == []
    pending.bells[BELL] = clock.at + 1_000
    warmer.look()
    assert warmed.events == [[BELL]]


def test_bells_that_come_soon_after_are_warmed_for_with_the_first(
    warmer: BridgeWarmer, pending: PendingBells, warmed: Warmed, clock: HandClock
) -> None:
    pending.bells = {f"late-{n}": clock.at + AHEAD_MS * 3 // 2 + n for n in range(2)} | {BELL: clock.at + AHEAD_MS}
    warmer.look()
    assert warmed.events == [[BELL, "late-0"]]


def test_one_event_is_for_so_many_bells_as_its_function_takes(
    warmer: BridgeWarmer, pending: PendingBells, warmed: Warmed, clock: HandClock
) -> None:
    pending.bells = {f"test:{{default/{n}}}:bell": clock.at + 5_000 + n for n in range(BATCH + 1)}
    warmer.look()
    warmer.look()
    warmer.look()
    assert [len(bells) for bells in warmed.events] == [BATCH, 1]
    assert BATCH == MAX_WARM
    assert list(read_warm_up(warm_event(warmed.events[0]))) == warmed.events[0]


@pytest.mark.parametrize("refusal", [InvocationRejected("throttled"), StoreUnavailable(), StoreMisused()])
def test_a_refusal_is_told_and_not_tried_again(
    warmer: BridgeWarmer,
    pending: PendingBells,
    warmed: Warmed,
    clock: HandClock,
    caplog: pytest.LogCaptureFixture,
    refusal: DuecourseError,
) -> None:
    warmed.refusal = refusal
    pending.bells[BELL] = clock.at + 5_000
    warmer.look()
    warmer.look()
    assert warmed.events == [[BELL]]
    assert str(refusal) in caplog.text


def test_what_rang_is_forgotten_after_the_spell(warmer: BridgeWarmer, clock: HandClock) -> None:
    warmer.rang([BELL])
    clock.advance(IDLE_MS - 1)
    warmer.look()
    assert warmer._last == {BELL: clock.at - IDLE_MS + 1}
    clock.advance(1)
    warmer.look()
    assert warmer._last == {}


def test_nothing_is_warmed_for_before_the_servers_time_is_known(
    warmer: BridgeWarmer, pending: PendingBells, warmed: Warmed, clock: HandClock
) -> None:
    clock.at, pending.bells = 0, {BELL: 5_000}
    warmer.look()
    assert warmed.events == []
