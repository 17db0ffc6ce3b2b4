"""arq: adds one by one, for it has no add of many at once, and a worker."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from arq import create_pool, func
from arq.connections import ArqRedis, RedisSettings
from arq.worker import Worker

from tests.bench.peers import turns
from tests.bench.peers.turns import DELAY_S, PAYLOAD, held_s, instants, note_late, serve_async

LEASE_S = 30
"""The lease that ours and BullMQ's have by default: arq's is ten seconds longer than a job may take."""
AT_ONCE = 50
"""Adds beside each other where their time is not measured."""


async def nothing(_ctx: Any, _payload: Any) -> None:
    """Do nothing."""


async def late(_ctx: Any, payload: Any) -> None:
    """Note how late it is."""
    note_late(payload)


async def held(_ctx: Any, _payload: Any) -> None:
    """Last while the file HOLD is there."""
    await asyncio.sleep(held_s())


async def add(pool: ArqRedis) -> None:
    """Serve adds."""

    async def one(count: int) -> None:
        for _ in range(count):
            await pool.enqueue_job("nothing", PAYLOAD, _defer_by=timedelta(seconds=DELAY_S))

    async def due(count: int, kind: str, first_at: float, every_ms: float) -> None:
        times = instants(count, first_at, every_ms)
        for first in range(0, count, AT_ONCE):
            await asyncio.gather(*(_add(pool, kind, at, first_at) for at in times[first : first + AT_ONCE]))

    await serve_async(one=one, due=due)


async def _add(pool: ArqRedis, kind: str, at: float, first_at: float) -> None:
    until = datetime.fromtimestamp(at / 1_000, UTC) if first_at else None
    await pool.enqueue_job(kind, turns.payload(at), _defer_until=until)


async def work(settings: RedisSettings, max_jobs: int, look_ms: int) -> None:
    """Work with so many jobs at a time, looking each so many milliseconds."""

    async def ready(_ctx: Any) -> None:
        print("ready", flush=True)

    worker = Worker(
        [func(nothing), func(late), func(held)],
        redis_settings=settings,
        max_jobs=max_jobs,
        poll_delay=look_ms / 1_000,
        job_timeout=LEASE_S - 10,
        on_startup=ready,
    )
    await worker.async_run()


async def main(role: str, url: str, *given: str) -> None:
    """Serve."""
    settings = RedisSettings.from_dsn(url)
    if role == "add":
        await add(await create_pool(settings))
    else:
        await work(settings, *map(int, given))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
