"""docket (pydocket): adds, and a worker."""

import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from docket import Docket, Worker

from tests.bench.peers import turns
from tests.bench.peers.turns import BATCH, DELAY_S, PAYLOAD, held_s, instants, note_late, serve_async

LEASE = timedelta(seconds=30)
"""The lease that ours and BullMQ's have by default."""

CONNECTIONS = 1_000
"""Its tasks wait for one of a hundred connections otherwise."""


async def report(payload: Any) -> None:
    """Do nothing."""


async def nothing(payload: Any) -> None:
    """Do nothing."""


async def late(payload: Any) -> None:
    """Note how late it is."""
    note_late(payload)


async def held(payload: Any) -> None:
    """Last while the file HOLD is there."""
    del payload
    await asyncio.sleep(held_s())


KINDS = {"report": report, "nothing": nothing, "late": late, "held": held}


async def add(docket: Docket) -> None:
    """Serve adds."""

    async def one(count: int) -> None:
        for _ in range(count):
            await docket.add(report, when=_in(DELAY_S))(PAYLOAD)

    async def many(count: int) -> None:
        for _ in range(0, count, BATCH):
            await docket.add_many([docket.call(report, when=_in(DELAY_S))(PAYLOAD) for _ in range(BATCH)])

    async def due(count: int, kind: str, first_at: float, every_ms: float) -> None:
        times = instants(count, first_at, every_ms)
        for first in range(0, count, BATCH):
            await docket.add_many([_call(docket, kind, at, first_at) for at in times[first : first + BATCH]])

    await serve_async(one=one, many=many, due=due)


def _in(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def _call(docket: Docket, kind: str, at: float, first_at: float) -> Any:
    when = datetime.fromtimestamp(at / 1_000, UTC) if first_at else None
    return docket.call(KINDS[kind], when=when)(turns.payload(at))


async def work(docket: Docket, settings: Sequence[str]) -> None:
    """Work with so many tasks at a time, looking each so many milliseconds."""
    concurrency, look_ms = map(int, settings)
    look = timedelta(milliseconds=look_ms)
    async with Worker(
        docket,
        concurrency=concurrency,
        redelivery_timeout=LEASE,
        minimum_check_interval=look,
        scheduling_resolution=look,
    ) as worker:
        print("ready", flush=True)
        await worker.run_forever()


async def main(role: str, url: str, *settings: str) -> None:
    """Serve."""
    async with Docket(name="bench", url=f"{url}?max_connections={CONNECTIONS}") as docket:
        for kind in KINDS.values():
            docket.register(kind)
        await (add(docket) if role == "add" else work(docket, settings))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
