"""Reading of answers: each within its time and a bounded time of the processor, and to an end that can be proved.

A destination chooses its answer: interim answers, chunks of a byte and packed nothing go on without end, and Python
reads them on and on. Such a thread would take its part of the processor from all others.
"""

import http.client
import io
import re
import socket
import threading
import time
from typing import Any

from duecourse.errors import CallFailed, Crowded

QUICK_S = 0.005
"""Seconds of the processor that an answer may take before it is read in the lane; one of 1 MiB takes 2 to 15 ms."""
MOST_S = 0.25
"""Maximum seconds of the processor for one answer."""
WAIT_S = 0.25
"""Maximum wait for the lane: it holds a thread meanwhile, which others need."""
MAX_INTERIM = 20
"""Maximum number of interim answers (1xx) before an answer."""
SWITCHING, FINAL = 101, 200
"""Status of an answer after which no HTTP follows, and the least one that is not interim."""
HTTP_1_1 = 11
"""Version, as http.client has it, whose connections stay open."""
WITHOUT_BODY = frozenset({204, 205, 304})
"""Statuses whose answers have no body, whatever their headers say."""
LENGTH = re.compile(r"[0-9]{1,18}")


class Lane:
    """Lane of the answers that take long to read: one thread of a process is in it at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of_thread = threading.local()

    def enter(self, within_s: float) -> bool:
        """Wait for the lane; False if it is not free in time."""
        self._of_thread.inside = self._lock.acquire(timeout=within_s)
        return bool(self._of_thread.inside)

    def leave(self) -> None:
        """Leave the lane, if this thread is in it."""
        if getattr(self._of_thread, "inside", False):
            self._of_thread.inside = False
            self._lock.release()


class _BoundedReads(io.RawIOBase):
    """A socket's bytes, all of which must come before one deadline: a slow drip cannot hold a worker."""

    def __init__(self, source: io.RawIOBase, sock: socket.socket, lane: Lane) -> None:
        self._source = source
        self._sock = sock
        self._lane = lane
        self._deadline = time.monotonic() + (sock.gettimeout() or 0.0)
        self._began = time.thread_time()
        self.ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        if self.ended:
            return None
        self._lane.leave()  # to wait for the network takes nothing from others
        self._sock.settimeout(self._left_s())
        count = self._source.readinto(buffer)
        self._take_turn()
        return count

    def close(self) -> None:
        self._source.close()
        super().close()

    def _take_turn(self) -> None:
        used_s = time.thread_time() - self._began
        if used_s > MOST_S:
            raise CallFailed(f"the answer takes more than {MOST_S:g} s of the processor to read")
        if used_s > QUICK_S and not self._lane.enter(min(WAIT_S, self._left_s())):
            raise Crowded

    def _left_s(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        return left


class BoundedAnswer(http.client.HTTPResponse):
    """An answer whose head and body must both come within the timeout that its socket has as it begins.

    Interim answers are read and left out. A head that breaks off after its status line is an empty one: the status is
    there, and reading the body fails.
    """

    is_complete = False
    """True once the whole answer was read, its end was beyond doubt, and no byte came after it."""

    def __init__(self, sock: socket.socket, *args: Any, lane: Lane, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._reads = _BoundedReads(self.fp.detach(), sock, lane)
        self.fp = io.BufferedReader(self._reads)
        self._is_head = kwargs.get("method") == "HEAD"
        self._answered = False
        self._flaw: Exception | None = None

    def begin(self) -> None:
        """Read the head."""
        try:
            super().begin()
        except (http.client.HTTPException, OSError, CallFailed, Crowded) as error:
            if not self._answered:
                raise
            self._flaw, self.headers = error, http.client.HTTPMessage()
            self.msg, self.chunked, self.length, self.will_close = self.headers, False, None, True
        if len({length.strip() for text in self._all("content-length") for length in text.split(",")}) > 1:
            self._flaw = http.client.HTTPException("two different lengths of one body")
            del self.headers["content-length"]  # urllib3 would give up the status with it

    def read(self, amt: int | None = None) -> bytes:
        """Read so many bytes of the body. Raises the error of a head that broke off."""
        if self._flaw:
            raise self._flaw
        return super().read(amt)

    def _read_status(self) -> tuple[str, int, str]:
        for _ in range(MAX_INTERIM):
            line: tuple[str, int, str] = super()._read_status()  # type: ignore[misc]
            if line[1] == SWITCHING:
                raise CallFailed("the server switched to another protocol, which nobody requested")
            if line[1] >= FINAL:
                self._answered, (_, self.status, self.reason) = True, line
                return line
            http.client.parse_headers(self.fp)
        raise CallFailed(f"the server sent more than {MAX_INTERIM} interim answers")

    def _close_conn(self) -> None:
        self._reads.ended = True  # so that to peek reads nothing more
        self.is_complete = not self.fp.peek(1) and not self.length and self._has_certain_end()
        super()._close_conn()  # type: ignore[misc]

    def _has_certain_end(self) -> bool:
        """True if every reader of HTTP sees the end of this answer at the same byte."""
        lengths, codings = self._all("content-length"), self._all("transfer-encoding")
        if self.version != HTTP_1_1 or self._flaw or any("close" in text.lower() for text in self._all("connection")):
            return False
        if self._is_head or self.status in WITHOUT_BODY:
            return not codings and lengths in ([], ["0"])
        if codings:
            return not lengths and [coding.lower() for coding in codings] == ["chunked"]
        return len(lengths) == 1 and LENGTH.fullmatch(lengths[0]) is not None

    def _all(self, name: str) -> list[str]:
        return [text.strip() for text in self.headers.get_all(name, [])] if self.headers else []
