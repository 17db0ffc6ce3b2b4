"""The supervisor of the listener: in which order it connects, for rings before it listens are heard by nobody."""

import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue

from duecourse.ledger.bells import BellEvent, BellMessage, BellTimes
from duecourse.ringing.listener import ListenerSupervisor
from duecourse.ringing.timer import ServerClock, Timer
from tests.support.wait import until


class Heard:
    """Bells that note what is asked of them, and whose events are heard."""

    canary = "canary"
    events = True
    watches = True

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._sounds: SimpleQueue[BellMessage] = SimpleQueue()

    def channel(self, what: BellEvent) -> str:
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
        self._sounds.put(BellMessage(BellEvent.EXPIRED, self.canary))
        self._sounds.put(BellMessage(BellEvent.HEAD, self.canary, 0))
        return True

    def hear(self, timeout: float) -> BellMessage | None:
        try:
            sound = self._sounds.get(timeout=timeout)
        except Empty:
            return None
        self.asked.append(f"heard {sound.what}")
        return sound

    def known(self) -> list[str]:
        self.asked.append("sweep")
        return ["bell"]

    def look(self, bells: Sequence[str]) -> BellTimes:
        return BellTimes(1_000.0, [None for _ in bells])

    def covers(self, bells: Sequence[str]) -> bool:
        return bool(bells)

    def close(self) -> None:
        pass


def test_it_sweeps_once_it_listens_and_has_heard_its_canary() -> None:
    bells, swept, rung = Heard(), list[int](), list[str]()
    timer = Timer(bells, ServerClock(), lambda rings: rung.extend(ring.key for ring in rings))
    supervisor = ListenerSupervisor(
        bells, timer, beat_s=60, on_swept=swept.append, on_expiry=lambda _: None, on_lost=lambda: None
    )
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    until(lambda: swept)
    supervisor.stop()
    thread.join()
    assert bells.asked == ["primary", "flags", "subscribe", "heard expired", "heard head", "sweep"]
    assert (swept, rung, supervisor.events) == ([1], ["bell"], True)
