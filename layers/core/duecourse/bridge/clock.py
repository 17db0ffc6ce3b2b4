"""The server's time, by this machine's monotonic clock."""

import time
from typing import Protocol

STEP_MS = 50.0
"""Correction above which the log has a line: the server's clock was stepped, or this machine slept."""


class Clock(Protocol):
    """Clock that knows the time at a server, or at the foremost of several."""

    def now(self) -> float:
        """Epoch milliseconds with their fraction; 0 before the first answer."""


class ServerClock:
    """Time at the server, as far as its answers prove it."""

    def __init__(self) -> None:
        self._ahead: float | None = None

    def now(self) -> float:
        """Epoch milliseconds with their fraction; 0 before the first answer."""
        return 0.0 if self._ahead is None else time.monotonic() * 1000 + self._ahead

    def observe(self, sent: float, received: float, answered: float) -> float:
        """Learn from an answer, asked and received at (time.monotonic()); returns the correction, in ms.

        `answered` is the server's time (epoch ms) in it.

        The server looked at its clock some time between the two, so what is believed is moved no further than into
        that span: the quickest answers decide.
        """
        least, most = answered - received * 1000, answered - sent * 1000
        believed = (least + most) / 2 if self._ahead is None else self._ahead
        corrected = min(max(believed, least), most)
        correction = 0.0 if self._ahead is None else corrected - believed
        self._ahead = corrected
        return correction
