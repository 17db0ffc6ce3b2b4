"""A measured process in Python: told `one 300` or `many 3000` by a line, it answers with the seconds that took."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

PAYLOAD: Any = json.loads(os.environ["PAYLOAD"])
DELAY_S = int(os.environ["DELAY_MS"]) / 1000
BATCH = 1_000

Work = Callable[[int], object]


def serve(**works: Work) -> None:
    """Do what the lines of the standard input ask for."""
    print("ready", flush=True)
    for line in sys.stdin:
        name, count = line.split()
        began = time.perf_counter()
        works[name](int(count))
        print(time.perf_counter() - began, flush=True)


async def serve_async(**works: Callable[[int], Awaitable[object]]) -> None:
    """The same, of works that are awaited."""
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        name, count = line.split()
        began = time.perf_counter()
        await works[name](int(count))
        print(time.perf_counter() - began, flush=True)
