"""The bridge's ears: one thread that passes what a subscription hears to the timer, and watched keys to the relay."""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from duecourse.bridge.timer import Timer
from duecourse.errors import StoreUnavailable
from duecourse.ports.bells import Expiry, Sound, Subscription, What

log = logging.getLogger("duecourse.bridge")

OnExpiry = Callable[[Expiry], None]

HEAR_S = 0.2
CANARY_S = 2.0


class Ears:
    """Listens until the subscription dies or is closed; `ended` is set then."""

    def __init__(
        self, subscription: Subscription, timer: Timer, on_expiry: OnExpiry, canary: str, ended: threading.Event
    ) -> None:
        self._subscription = subscription
        self._timer = timer
        self._on_expiry = on_expiry
        self._canary = canary
        self._closing = False
        self._canary_went = False
        self._canaries: queue.SimpleQueue[bool | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="ears", daemon=True)
        self.ended = ended
        self.error: StoreUnavailable | None = None
        """The error that ended it, if one did."""

    def covers(self, bells: Sequence[str]) -> bool:
        """True if the heads of all these bells can be heard."""
        return self._subscription.covers(bells)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening, within HEAR_S."""
        self._closing = True
        self._thread.join()

    def heard_canary(self) -> bool:
        """True if the canary's event was heard before its head. Raises StoreUnavailable if neither was heard.

        Both come over the subscription, in this order: a head alone proves that it lives and that events are off.
        """
        with suppress(queue.Empty):
            heard = self._canaries.get(timeout=CANARY_S)
            if heard is not None:
                return heard
        raise self.error or StoreUnavailable(f"the subscription was silent for {CANARY_S:g} s: it is dead")

    def _run(self) -> None:
        try:
            while not self._closing:
                sound = self._subscription.hear(HEAR_S)
                if sound:
                    self._pass_on(sound)
        except StoreUnavailable as error:
            self.error = error
        except Exception as error:
            # Nobody waits for this thread: an error that it kept to itself would leave the bridge deaf until a beat.
            log.exception("the subscription ended by a fault of the bridge: it is made again")
            self.error = StoreUnavailable(f"the subscription ended by a fault: {error!r}")
        finally:
            self._canaries.put(None)
            self.ended.set()
            self._subscription.close()

    def _pass_on(self, sound: Sound | Expiry) -> None:
        if isinstance(sound, Expiry):
            self._on_expiry(sound)
        elif sound.bell == self._canary:
            self._on_canary(sound.what)
        elif sound.what is What.HEAD:
            self._timer.move(sound.bell, sound.at)
        else:
            self._timer.went(sound.bell, sound.what)

    def _on_canary(self, what: What) -> None:
        """Its head ends one trial, and says whether the event came before it.

        The server sends both over this connection, in order: so no clock decides how long an event may take.
        """
        if what is What.HEAD:
            self._canaries.put(self._canary_went)
        self._canary_went = what is not What.HEAD
