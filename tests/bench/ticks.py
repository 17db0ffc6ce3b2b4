"""What a tick costs over shards that have nothing to do, and a shard in numbers where many tenants take turns."""

import random
import time
from collections.abc import Callable

import redis

from duecourse.ledger.connect import connect
from duecourse.ledger.operation_types import MAX_ADD
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import NewTask, Shard
from duecourse.ringing.tick import Retention, Sweeper
from duecourse.running.drain import Drainer, Limits
from duecourse.running.run import Runner
from duecourse.running.threads import Threads
from tests.bench.figures import ROUNDS, Figure, Rounds
from tests.bench.ledger import Nobody
from tests.bench.server import BenchServer
from tests.bench.stage import Measured
from tests.support.engine import fire_nothing, targets_of

DAY_MS = 86_400_000
SHARDS = (1, 1_000, 10_000)
TENANTS = 10_000
RING = Shard("ring")


def figures(server: BenchServer, _pending: int) -> Measured:
    """Each on an empty database; the ticks after one that swept every shard."""
    with connect(server.url) as client:
        assert isinstance(client, redis.Redis)
        for count in SHARDS:
            client.flushall()
            yield [_tick(client, count)]
        client.flushall()
        yield [_stats(client)]


def _tick(client: redis.Redis, count: int) -> Figure:
    ledger = Ledger(client)
    for n in range(count):
        ledger.add([NewTask("later", "report", "1", f"q{n}", delay_ms=DAY_MS)])
    threads = Threads(1)
    runner = Runner(lambda _kind: None, None, ledger.now, random.Random())
    drainer = Drainer(ledger, runner, targets_of({}, Nobody()), threads, Limits(60_000, 0), fire_nothing)
    sweeper = Sweeper(ledger, drainer, Retention(DAY_MS), 0)

    def tick() -> None:
        sweeper.tick(sweeper.survey(lambda: 60_000), lambda: 60_000)

    tick()
    measured = _cost(client, tick)
    threads.close()
    return Figure(f"tick over {count:,} idle shard{'s' if count > 1 else ''}", measured=measured)


def _stats(client: redis.Redis) -> Figure:
    ledger = Ledger(client)
    for first in range(0, TENANTS, MAX_ADD):
        ledger.add([NewTask("due", "report", "1", RING.queue, f"t{first + n}") for n in range(MAX_ADD)])
    while client.zcard("duecourse:{ring/0}:heads"):
        ledger.claim(RING, 1, lease_ms=60_000)
    name = f"stats of a shard in which {TENANTS:,} tenants take turns"
    return Figure(name, "", "≤ 5 ms of the server", _cost(client, lambda: ledger.stats(RING)))


def _cost(client: redis.Redis, work: Callable[[], object]) -> str:
    """The server's own time, and that on the wall."""
    pairs = []
    for _ in range(ROUNDS):
        before, start = _server_ms(client), time.perf_counter()
        work()
        took_ms = (time.perf_counter() - start) * 1000
        pairs.append((_server_ms(client) - before, took_ms))
    server_ms, wall_ms = (Rounds(column).shown("{:.1f} ms") for column in zip(*pairs, strict=True))
    return f"{server_ms} of the server, {wall_ms} in all"


def _server_ms(client: redis.Redis) -> float:
    used = client.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"]) * 1000
