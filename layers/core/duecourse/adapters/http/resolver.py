"""Look-up of a host by the system's resolver, on a thread that is given up on where the look-up takes too long."""

import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from urllib3.util.connection import allowed_gai_family

from duecourse.errors import CallFailed, CallTimedOut, FieldError, InvalidInput

LIMIT_S = 5.0
"""Maximum time of one look-up; glibc's own is up to 30 s, and nobody can stop it before."""
AT_ONCE = 128
"""Maximum number of look-ups at a time, given up or not. Of them 96 are for calls that wait as long as a look-up may
take: 16 parallel ones, each given up after 5 s of 30."""
OF_HASTY = 4
"""One slot in so many is for calls of less time: given up after 0.1 s, each leaves 300 look-ups behind, not six."""
MAX_ADDRESSES = 16
"""Maximum number of a host's addresses that are used."""

LookUp = Callable[..., list[Any]]
"""`socket.getaddrinfo`, or what does as it does."""


class SystemResolver:
    """A Resolver over getaddrinfo, which has no time limit of its own; safe for threads.

    Calls of less time than a look-up may take have slots of their own. So short timeouts, with names that nobody
    resolves, take no slots of other calls.

    What is an address already, in any spelling that the system reads, is answered at once: no thread, no look-up.
    """

    def __init__(self, look_up: LookUp = socket.getaddrinfo, limit_s: float = LIMIT_S, at_once: int = AT_ONCE) -> None:
        self._look_up = look_up
        self._limit_s = limit_s
        self._hasty = threading.BoundedSemaphore(max(at_once // OF_HASTY, 1))
        self._patient = threading.BoundedSemaphore(max(at_once - at_once // OF_HASTY, 1))

    def __call__(self, host: str, port: int, within_s: float, /) -> list[str]:
        """Numeric addresses of a host; raises as a Resolver does."""
        try:
            return self._found(host, port, socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass  # a name
        except UnicodeError:
            raise InvalidInput([FieldError("url", "is not an http or https address")]) from None
        limit_s = min(within_s, self._limit_s)
        found = self._aside(host, port, limit_s)
        if isinstance(found, queue.Empty):
            raise CallTimedOut(f"the host name was not resolved within {limit_s:.2g} s") from found
        if isinstance(found, OSError):
            raise CallFailed("the host name is not known") from found
        return found

    def _aside(self, host: str, port: int, limit_s: float) -> list[str] | OSError | queue.Empty:
        """Addresses that a thread finds within the limit; a late one is left to itself, and keeps its slot."""
        until, slots = time.monotonic() + limit_s, self._hasty if limit_s < self._limit_s else self._patient
        if not slots.acquire(timeout=limit_s):
            return queue.Empty()
        answer: queue.SimpleQueue[list[str] | OSError] = queue.SimpleQueue()

        def look_up() -> None:
            try:
                answer.put(self._found(host, port, 0))
            except OSError as error:
                answer.put(error)
            finally:
                slots.release()

        threading.Thread(target=look_up, name="look-up", daemon=True).start()
        try:
            return answer.get(timeout=max(until - time.monotonic(), 0.001))
        except queue.Empty as late:
            return late

    def _found(self, host: str, port: int, flags: int) -> list[str]:
        places = self._look_up(host, port, allowed_gai_family(), socket.SOCK_STREAM, 0, flags)
        return list(dict.fromkeys(str(place[0]) for *_, place in places))[:MAX_ADDRESSES]
