"""The keeper by itself: in which order it connects, for what rings before it listens is heard by nobody."""

import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue

from duecourse.bridge.clock import ServerClock
from duecourse.bridge.keeper import Keeper
from duecourse.bridge.timer import Timer
from duecourse.ports.bells import Sound, View, What
from tests.support.wait import until


class Heard:
    """Bells that note what is asked of them, and whose events are heard."""

    canary = "canary"
    events = True
    watches = True

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._sounds: SimpleQueue[Sound] = SimpleQueue()

    def channel(self, what: What) -> str:
        return what

    def check_primary(self) -> None:
        self.asked.append("primary")

    def enable_events(self) -> str:
        self.asked.append("flags")
        return ""

    def subscribe(self) -> "Heard":
        self.asked.append("subscribe")
        return self

    def try_canary(self) -> bool:
        self._sounds.put(Sound(What.EXPIRED, self.canary))
        self._sounds.put(Sound(What.HEAD, self.canary, 0))
        return True

    def hear(self, timeout: float) -> Sound | None:
        try:
            sound = self._sounds.get(timeout=timeout)
        except Empty:
            return None
        self.asked.append(f"heard {sound.what}")
        return sound

    def known(self) -> list[str]:
        self.asked.append("sweep")
        return ["bell"]

    def look(self, bells: Sequence[str]) -> View:
        return View(1_000.0, [None for _ in bells])

    def covers(self, bells: Sequence[str]) -> bool:
        return bool(bells)

    def close(self) -> None:
        pass


def test_it_sweeps_once_it_listens_and_has_heard_its_canary() -> None:
    bells, swept, rung = Heard(), list[int](), list[str]()
    timer = Timer(bells, ServerClock(), lambda rings: rung.extend(ring.key for ring in rings))
    keeper = Keeper(bells, timer, beat_s=60, on_swept=swept.append, on_expiry=lambda _: None, on_lost=lambda: None)
    thread = threading.Thread(target=keeper.run)
    thread.start()
    until(lambda: swept)
    keeper.stop()
    thread.join()
    assert bells.asked == ["primary", "flags", "subscribe", "heard expired", "heard head", "sweep"]
    assert (swept, rung, keeper.events) == ([1], ["bell"], True)
