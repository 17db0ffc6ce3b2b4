"""docket's adds (pydocket)."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from docket import Docket

from tests.bench.peers.turns import BATCH, DELAY_S, PAYLOAD, serve_async


async def report(payload: Any) -> None:
    """The task."""


async def main() -> None:
    """Serve."""
    async with Docket(name="bench", url=sys.argv[1]) as docket:
        docket.register(report)

        def due() -> datetime:
            return datetime.now(UTC) + timedelta(seconds=DELAY_S)

        async def one(count: int) -> None:
            for _ in range(count):
                await docket.add(report, when=due())(PAYLOAD)

        async def many(count: int) -> None:
            for _ in range(0, count, BATCH):
                await docket.add_many([docket.call(report, when=due())(PAYLOAD) for _ in range(BATCH)])

        await serve_async(one=one, many=many)


if __name__ == "__main__":
    asyncio.run(main())
