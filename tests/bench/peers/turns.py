"""A measured process in Python: a line asks the adder for work, and its answer is the seconds that took.

    one COUNT                         tasks that are due in an hour, one by one
    many COUNT                        the same, a thousand at a time
    due COUNT KIND FIRST_AT EVERY_MS  tasks that come due one after another (epoch ms; 0: all at once, now)

The kinds that workers run: `nothing`; `late`, which notes how late it begins; `held`, which lasts while the file HOLD
is there.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

PAYLOAD: Any = json.loads(os.environ.get("PAYLOAD", "{}"))
DELAY_S = int(os.environ.get("DELAY_MS", "0")) / 1_000
BATCH = 1_000
HELD_S = 600.0

Work = Callable[..., object]


def instants(count: int, first_at: float, every_ms: float) -> list[float]:
    """When each task is due (epoch ms)."""
    begin = first_at or time.time() * 1_000
    return [begin + number * every_ms for number in range(count)]


def payload(due: float) -> Any:
    """The payload of a task that is due then: 120 bytes."""
    return {**PAYLOAD, "user": PAYLOAD["user"][:88], "due": round(due)}


def serve(**works: Work) -> None:
    """Do what the lines of the standard input ask for."""
    print("ready", flush=True)
    for line in sys.stdin:
        name, *given = line.split()
        began = time.perf_counter()
        works[name](*_read(given))
        print(time.perf_counter() - began, flush=True)


async def serve_async(**works: Callable[..., Awaitable[object]]) -> None:
    """The same, of works that are awaited."""
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        name, *given = line.split()
        began = time.perf_counter()
        await works[name](*_read(given))
        print(time.perf_counter() - began, flush=True)


def _read(given: list[str]) -> list[Any]:
    return [one if one.isalpha() else int(one) if one.isdigit() else float(one) for one in given]


def note(text: object) -> None:
    """Append a line to the file NOTES: no call of the measured server, and no lock between processes."""
    with open(os.environ["NOTES"], "ab", buffering=0) as file:
        file.write(f"{text}\n".encode())


def note_late(payload: Any) -> None:
    """Note by how many milliseconds a task is late."""
    note(time.time() * 1_000 - payload["due"])


def held_s() -> float:
    """Note that a held task begins; the seconds for which it lasts."""
    note("begun")
    return HELD_S if Path(os.environ["HOLD"]).exists() else 0.0
