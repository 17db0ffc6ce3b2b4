"""The time of a server as its client knows it, and the instant until which a call to it is valid."""

import time
from typing import Any

import redis

from duecourse.domain.spoken import span

MARGIN_MS = 250.0
"""Time for which a call is valid after its caller has given it up: what a clock may be off, and a connection takes."""
TRUSTED_MS = 600_000.0
"""Time after the last answer with a time, after which a server is asked for it again: clocks drift."""
EPOCH_MS = 10**12
"""Least number that is taken for a time: any other first part of an answer is smaller."""


class ServerTime:
    """One server's clock beside this process's monotonic one, in milliseconds."""

    __slots__ = ("_ahead", "_heard")

    def __init__(self, sent: float, now: float) -> None:
        """`now` is the server's answer to TIME, which was sent at `sent` (`monotonic()`)."""
        self._ahead = now - sent
        """The server's clock minus the monotonic one; rather too much, or a call would expire too early."""
        self._heard = monotonic()

    def until(self, for_ms: float) -> int:
        """The server's time at which a caller that waits `for_ms` from now has certainly given up."""
        return int(monotonic() + self._ahead + for_ms + MARGIN_MS)

    def hear(self, sent: float, answer: Any) -> None:
        """Follow the server's clock, by an answer that begins with the time, as most scripts' do."""
        if type(answer) is list and answer and type(answer[0]) is int and answer[0] > EPOCH_MS:
            now = monotonic()
            # The script ran between `sent` and now: its clock is as far ahead as either end allows.
            self._ahead = min(max(self._ahead, answer[0] - now), answer[0] + 1 - sent)
            self._heard = now

    def is_trusted(self) -> bool:
        """True if the server's last answer with a time is younger than TRUSTED_MS."""
        return monotonic() - self._heard < TRUSTED_MS


def difference(now: float) -> str:
    """Warning where the server's time is far from this process's, "" where it is not."""
    minutes = int((now / 1000 - time.time()) / 60)
    if not minutes:
        return ""
    side = "ahead of" if minutes > 0 else "behind"
    return (
        f"CLOCKS DIFFER: the store's clock is {span(abs(minutes) * 60_000)} {side} this process's, and tasks come "
        "due by the store's. Set both by one source of time, such as NTP"
    )


def warning(server: redis.Redis) -> str:
    """Ask a server for its time, and return the same warning. Raises RedisError."""
    seconds, micros = server.time()
    return difference(seconds * 1000 + micros / 1000)


def monotonic() -> float:
    """Milliseconds of this process's monotonic clock."""
    return time.monotonic() * 1000
