"""What a busy machine may add to a time measured meanwhile: how long a thread waited, and how slowly work went."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_S = 0.005
HANDS = 3
"""Number of threads and processes, one after another, of which each may have been kept waiting so."""
MADE_GOOD_MS = 900
"""Just below the second after which a lost ring is made good: no busy machine excuses that."""


@contextmanager
def stalls() -> Iterator[Callable[[], float]]:
    """Watch the machine: the function answers how many seconds it may have added so far."""
    over, longest = threading.Event(), 0.0

    def watch() -> None:
        nonlocal longest
        while not over.is_set():
            began = time.monotonic()
            over.wait(EVERY_S)
            longest = max(longest, time.monotonic() - began - EVERY_S)

    thread = threading.Thread(target=watch, name="stalls", daemon=True)
    thread.start()
    try:
        yield lambda: HANDS * longest
    finally:
        over.set()
        thread.join()


@contextmanager
def on_time_ms(usual_ms: int) -> Iterator[Callable[[], float]]:
    """Watch the machine: the function answers how late a ring may have been, `usual_ms` where nothing else runs."""
    with stalls() as added_s:
        yield lambda: min(usual_ms + 1_000 * added_s(), MADE_GOOD_MS)


WORK = """
import time
while True:
    began, used = time.monotonic(), time.process_time()
    while time.process_time() - used < 0.05:
        pass
    print((time.monotonic() - began) / 0.05, flush=True)
    time.sleep(0.1)
"""
"""Prints again and again how many times longer 50 ms of a processor took."""


@contextmanager
def slowdown() -> Iterator[Callable[[], float]]:
    """Watch the machine: the function answers how many times longer work took at the worst moment, 1 at least."""
    worst = 1.0

    def watch() -> None:
        nonlocal worst
        for line in working.stdout or ():
            worst = max(worst, float(line))

    with subprocess.Popen([sys.executable, "-c", WORK], stdout=subprocess.PIPE, text=True) as working:
        thread = threading.Thread(target=watch, name="slowdown", daemon=True)
        thread.start()
        try:
            yield lambda: worst
        finally:
            working.kill()
            thread.join()
