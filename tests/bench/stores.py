"""What the stores without a server do in a second."""

import tempfile
import time
from pathlib import Path

from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.embedded.leveldb import LevelDisk
from duecourse.ledger.operation_types import MAX_ADD
from duecourse.ledger.task import Ending, NewTask, Settlement, Shard
from tests.bench.figures import HOUR_MS, PAYLOAD, ROUNDS, Figure, Rounds
from tests.bench.ledger import BATCH
from tests.bench.server import BenchServer
from tests.bench.stage import Measured

COUNT = 10_000
SINGLE = 1_000


def figures(_server: BenchServer, _pending: int) -> Measured:
    """Each store's, a new one each round."""
    yield _shown("memory", [_rates(EmbeddedLedger()) for _ in range(ROUNDS)])
    with tempfile.TemporaryDirectory(prefix="duecourse-") as folder:
        rates = []
        for turn in range(ROUNDS):
            ledger = EmbeddedLedger(disk=LevelDisk(str(Path(folder) / f"ledger-{turn}")))
            rates.append(_rates(ledger))
            ledger.close()
    yield _shown("leveldb, synced", rates)


def _shown(name: str, rates: list[tuple[float, float, float]]) -> list[Figure]:
    works = (f"add, {MAX_ADD:,} at a time", "add, one by one", f"claim + settle, {BATCH} at a time")
    columns = zip(*rates, strict=True)
    return [
        Figure(f"{name}: {work}", measured=Rounds(column).per_second())
        for work, column in zip(works, columns, strict=True)
    ]


def _rates(ledger: EmbeddedLedger) -> tuple[float, float, float]:
    tasks = [NewTask(f"t-{n}", "report", PAYLOAD) for n in range(COUNT)]
    singles = [NewTask(f"s-{n}", "report", PAYLOAD, delay_ms=HOUR_MS) for n in range(SINGLE)]
    began = time.perf_counter()
    for start in range(0, COUNT, MAX_ADD):
        ledger.add(tasks[start : start + MAX_ADD])
    bulk = COUNT / (time.perf_counter() - began)
    began = time.perf_counter()
    for task in singles:
        ledger.add([task])
    single = SINGLE / (time.perf_counter() - began)
    began = time.perf_counter()
    while claimed := ledger.claim(Shard(), BATCH, lease_ms=60_000).tasks:
        ledger.settle(Shard(), [Settlement(t.id, t.tenant, t.token, Ending.DONE) for t in claimed])
    return bulk, single, COUNT / (time.perf_counter() - began)
