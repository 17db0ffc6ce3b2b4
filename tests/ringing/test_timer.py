"""The bridge's timer by itself: what it takes for a ring, what for an echo, when it asks again."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from duecourse.errors import StoreUnavailable
from duecourse.ledger.bells import BellEvent, BellMessage, BellTimes, Subscription
from duecourse.ledger.redis_bells import missing_flags
from duecourse.ledger.task import Trigger
from duecourse.ringing.bridge_event import Ring
from duecourse.ringing.listener import Listener
from duecourse.ringing.timer import ServerClock, Timer
from tests.support.wait import until

BELL = "test:{default/0}:bell"
OTHER = "test:{default/1}:bell"


class HandBells:
    """A server's bells kept in a dictionary, its clock this machine's, moved by `ahead_ms`."""

    canary = "test:{canary/b0}:bell"
    events = True

    def __init__(self) -> None:
        self.hung: dict[str, int] = {}
        self.ahead_ms = 0.0
        self.away = False
        self.stays = False
        self.looks = 0

    def now(self) -> float:
        return time.time() * 1000 + self.ahead_ms

    def look(self, bells: Sequence[str]) -> BellTimes:
        self.looks += 1
        if self.away:
            raise StoreUnavailable
        now = self.now()
        if not self.stays:
            self.hung = {bell: at for bell, at in self.hung.items() if int(now) <= at}
        return BellTimes(now, [self.hung.get(bell) for bell in bells])

    def channel(self, what: BellEvent) -> str:
        return what.value

    def check_primary(self) -> None:
        raise NotImplementedError

    def enable_events(self) -> str:
        raise NotImplementedError

    def subscribe(self) -> Subscription:
        raise NotImplementedError

    def known(self) -> list[str]:
        raise NotImplementedError

    def try_canary(self) -> bool:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Rung:
    """What a timer rang for."""

    def __init__(self) -> None:
        self.rings: list[tuple[str, str, float]] = []
        self.doors: list[Trigger] = []

    def __call__(self, rings: list[Ring]) -> None:
        self.doors += [ring.trigger for ring in rings]
        self.rings += [(ring.key, ring.channel, time.time() * 1000) for ring in rings]

    @property
    def keys(self) -> list[str]:
        return [key for key, _, _ in self.rings]


@pytest.fixture
def bells() -> HandBells:
    return HandBells()


@pytest.fixture
def rung() -> Rung:
    return Rung()


@pytest.fixture
def timer(bells: HandBells, rung: Rung) -> Timer:
    timer = Timer(bells, ServerClock(), rung)
    timer.set_clock()
    return timer


@contextmanager
def running(timer: Timer) -> Iterator[None]:
    thread = threading.Thread(target=timer.run)
    thread.start()
    try:
        yield
    finally:
        timer.stop()
        thread.join()


def hang(bells: HandBells, timer: Timer, bell: str, in_ms: int) -> int:
    at = bells.hung[bell] = int(bells.now()) + in_ms
    timer.move(bell, at)
    return at


def test_a_rehang_of_a_bell_that_had_passed_unrung_is_a_ring(timer: Timer, rung: Rung, bells: HandBells) -> None:
    timer.move(BELL, int(bells.now()) - 5)
    timer.move(BELL, int(bells.now()) + 1000)
    assert rung.keys == [BELL]


def test_a_bell_taken_down_after_it_had_passed_is_a_ring(timer: Timer, rung: Rung, bells: HandBells) -> None:
    timer.move(BELL, int(bells.now()) - 5)
    timer.move(BELL, 0)
    assert rung.keys == [BELL]


def test_a_rehang_of_a_bell_still_ahead_is_no_ring(timer: Timer, rung: Rung, bells: HandBells) -> None:
    timer.move(BELL, int(bells.now()) + 500)
    timer.move(BELL, int(bells.now()) + 1000)
    timer.move(BELL, 0)
    assert rung.keys == []


def test_an_expiry_heard_before_the_timer_asked_rings_once(timer: Timer, rung: Rung, bells: HandBells) -> None:
    hang(bells, timer, BELL, -1)
    timer.went(BELL, BellEvent.EXPIRED)
    with running(timer):
        hang(bells, timer, OTHER, 20)
        until(lambda: OTHER in rung.keys)
    assert rung.keys.count(BELL) == 1


def test_the_echo_of_the_timers_own_look_is_no_second_ring(timer: Timer, rung: Rung, bells: HandBells) -> None:
    with running(timer):
        hang(bells, timer, BELL, 5)
        until(lambda: rung.keys)
    timer.went(BELL, BellEvent.EXPIRED)
    assert rung.keys == [BELL]
    timer.went(BELL, BellEvent.EXPIRED)
    assert rung.keys == [BELL, BELL], "only one event echoes one look"


def test_a_head_ends_the_wait_for_an_echo(timer: Timer, rung: Rung, bells: HandBells) -> None:
    with running(timer):
        hang(bells, timer, BELL, 5)
        until(lambda: rung.keys)
    timer.move(BELL, int(bells.now()) + 60_000)
    timer.went(BELL, BellEvent.EXPIRED)
    assert rung.keys == [BELL, BELL]


def test_an_eviction_is_always_a_ring(timer: Timer, rung: Rung, bells: HandBells) -> None:
    hang(bells, timer, BELL, 60_000)
    timer.went(BELL, BellEvent.EVICTED)
    assert [(key, channel) for key, channel, _ in rung.rings] == [(BELL, "evicted")]


def test_no_bell_rings_before_its_time(timer: Timer, rung: Rung, bells: HandBells) -> None:
    with running(timer):
        due = {f"test:{{default/{n}}}:bell": hang(bells, timer, f"test:{{default/{n}}}:bell", n) for n in range(50)}
        until(lambda: len(rung.rings) == 50)
    assert all(at > due[key] for key, _, at in rung.rings)


def test_a_bell_is_asked_for_when_its_own_millisecond_is_over_and_one_look_will_do(
    timer: Timer, rung: Rung, bells: HandBells
) -> None:
    before = bells.looks
    with running(timer):
        for n in range(20):
            hang(bells, timer, f"test:{{default/{n}}}:bell", 20 + 10 * n)
        until(lambda: len(rung.rings) == 20)
    assert bells.looks - before < 30


def test_a_bell_that_outstays_its_time_is_asked_for_again_but_not_hotly(
    timer: Timer, rung: Rung, bells: HandBells
) -> None:
    bells.stays = True
    with running(timer):
        at = hang(bells, timer, BELL, 5)
        until(lambda: bells.now() > at + 500)
        looks = bells.looks
        bells.stays = False
        until(lambda: rung.keys)
    assert looks < 100


def test_a_store_that_is_away_loses_no_bell(timer: Timer, rung: Rung, bells: HandBells) -> None:
    with running(timer):
        bells.away = True
        at = hang(bells, timer, BELL, 5)
        until(lambda: bells.now() > at + 150)
        assert rung.keys == []
        assert bells.looks < 40
        bells.away = False
        until(lambda: rung.keys)


def test_a_step_of_the_servers_clock_is_followed(
    timer: Timer, rung: Rung, bells: HandBells, caplog: pytest.LogCaptureFixture
) -> None:
    with running(timer):
        hang(bells, timer, BELL, 300_000)
        bells.ahead_ms = 300_000
        timer.set_clock()
        until(lambda: rung.keys)
    assert "clock moved by +300000 ms" in caplog.text


def test_a_step_back_makes_no_look_hot(timer: Timer, bells: HandBells) -> None:
    with running(timer):
        bells.ahead_ms = -60_000
        bells.hung[BELL] = int(bells.now()) + 60_010
        timer.move(BELL, bells.hung[BELL])
        before = bells.looks
        until(lambda: bells.looks > before)
        hang(bells, timer, OTHER, 100)
        until(lambda: OTHER not in bells.hung)
        assert bells.looks < before + 10


def test_a_look_does_not_undo_what_a_head_told_meanwhile(timer: Timer, rung: Rung) -> None:
    class Racing(HandBells):
        def look(self, asked: Sequence[str]) -> BellTimes:
            view = super().look(asked)
            if asked:
                timer.move(BELL, int(self.now()) + 20)
            return view

    racing = Racing()
    racing.hung[BELL] = int(racing.now()) + 60_000
    timer._bells = racing
    timer.look([BELL], ring_missing=True)
    racing.hung.clear()
    with running(timer):
        until(lambda: rung.keys)


def test_a_look_rings_for_what_vanished_and_learns_what_hangs(timer: Timer, rung: Rung, bells: HandBells) -> None:
    hang(bells, timer, BELL, 60_000)
    del bells.hung[BELL]
    bells.hung[OTHER] = int(bells.now()) + 10
    timer.look([BELL, OTHER], ring_missing=False)
    assert rung.keys == [BELL]
    with running(timer):
        until(lambda: rung.keys == [BELL, OTHER])
    timer.look([BELL, OTHER], ring_missing=False)
    assert rung.keys == [BELL, OTHER], "a shard at rest has no bell and wants no ring"


def test_a_look_that_reads_another_time_of_a_bell_that_had_passed_rings(
    timer: Timer, rung: Rung, bells: HandBells
) -> None:
    """It went, and was hung anew, and nobody heard either: what was due at its former time is to be claimed."""
    hang(bells, timer, BELL, 500)
    hang(bells, timer, OTHER, 60_000)
    bells.ahead_ms += 1_000
    bells.hung[BELL] = bells.hung[OTHER] = int(bells.now()) + 70_000
    timer.look([BELL, OTHER], ring_missing=False)
    assert rung.keys == [BELL]


def test_many_rehangs_of_one_bell_leave_no_heap_behind(timer: Timer, bells: HandBells) -> None:
    for n in range(5_000):
        timer.move(BELL, int(bells.now()) + 60_000 + n)
    assert len(timer._asks) < 1_100


def test_the_clock_is_never_believed_beyond_what_an_answer_proves() -> None:
    clock = ServerClock()
    assert clock.observe(10.0, 10.2, 1_000_000.0) == 0
    assert clock.observe(20.0, 20.001, 1_010_000.0) == pytest.approx(99, abs=2)
    assert clock.observe(30.0, 30.5, 1_020_100.0) == 0, "a slow answer that agrees changes nothing"


@pytest.mark.parametrize(
    ("flags", "missing"),
    [("", "Exe"), ("Ex", "e"), ("AE", ""), ("AKE", ""), ("A", "E"), ("Kg$", "Exe"), ("xe", "E"), ("Exemn", "")],
)
def test_missing_flags_understand_the_alias(flags: str, missing: str) -> None:
    assert missing_flags(flags) == missing


class Deaf:
    """A subscription that died without an error."""

    def __init__(self) -> None:
        self.closed = False
        self.error: StoreUnavailable | None = None

    def hear(self, timeout: float) -> BellMessage | None:
        if self.error:
            raise self.error
        threading.Event().wait(min(timeout, 0.01))
        return None

    def covers(self, bells: Sequence[str]) -> bool:
        return not bells

    def close(self) -> None:
        self.closed = True


def test_a_subscription_that_is_silent_to_its_canary_is_dead(timer: Timer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duecourse.ringing.listener.CANARY_S", 0.05)
    deaf = Deaf()
    listener = Listener(deaf, timer, lambda _: None, HandBells.canary, threading.Event())
    listener.start()
    with pytest.raises(StoreUnavailable, match="dead"):
        listener.heard_canary()
    listener.close()
    assert deaf.closed


def test_a_subscription_that_breaks_ends_the_ears_with_its_error(timer: Timer) -> None:
    broken, ended = Deaf(), threading.Event()
    broken.error = StoreUnavailable("connection reset")
    listener = Listener(broken, timer, lambda _: None, HandBells.canary, ended)
    listener.start()
    assert ended.wait(30)
    with pytest.raises(StoreUnavailable, match="connection reset"):
        listener.heard_canary()
    listener.close()


def test_a_ring_says_whether_an_event_or_the_timer_found_it(timer: Timer, rung: Rung) -> None:
    timer.went(BELL, BellEvent.EXPIRED)
    timer.look([OTHER], ring_missing=True)
    assert (rung.keys, rung.doors) == ([BELL, OTHER], [Trigger.RING, Trigger.TIMER])


@pytest.mark.parametrize("forged", [0, 10**14])
@pytest.mark.parametrize("in_ms", [20, 150, 600])
def test_a_forged_head_makes_no_bell_late(timer: Timer, rung: Rung, bells: HandBells, in_ms: int, forged: int) -> None:
    with running(timer):
        hang(bells, timer, BELL, in_ms)
        timer.move(BELL, forged)
        until(lambda: rung.keys)
    assert rung.keys == [BELL]


@pytest.mark.slow
def test_a_flood_of_forged_heads_makes_no_bell_late(timer: Timer, rung: Rung, bells: HandBells) -> None:
    with running(timer):
        at = hang(bells, timer, BELL, 600)
        while not rung.rings and time.time() * 1000 < at + 20_000:
            timer.move(BELL, 10**14)
            timer.move(BELL, 0)
    assert rung.keys[:1] == [BELL]


def test_a_bell_that_was_really_taken_away_or_moved_is_no_ring(timer: Timer, rung: Rung, bells: HandBells) -> None:
    timer.set_clock()
    with running(timer):
        hang(bells, timer, BELL, 5_000)
        hang(bells, timer, OTHER, 5_000)
        looks = bells.looks
        bells.hung.pop(BELL)
        timer.move(BELL, 0)
        hang(bells, timer, OTHER, 60_000)
        until(lambda: bells.looks > looks)
        assert rung.rings == []
        assert [bell for bell, _ in timer.pending_bells()] == [OTHER]


def test_an_earlier_time_that_a_look_saw_counts_though_a_head_came_meanwhile(timer: Timer, bells: HandBells) -> None:
    at = hang(bells, timer, BELL, 60_000)
    real = bells.look

    def look(names: Sequence[str]) -> BellTimes:
        timer.move(BELL, 10**14)
        return real(names)

    bells.look = look  # type: ignore[method-assign]
    timer.look([BELL], ring_missing=False)
    assert timer.pending_bells() == [(BELL, at)]
