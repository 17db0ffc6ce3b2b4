"""What the stores without a server do in a second: `python -m tests.bench.stores`."""

import tempfile
import time
from pathlib import Path

from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.embedded.leveldb import LevelDisk
from duecourse.ledger.operations import MAX_ADD
from duecourse.ledger.task import Ending, NewTask, Settlement, Shard
from tests.bench.figures import HOUR_MS, PAYLOAD
from tests.bench.ledger import BATCH

COUNT = 50_000
SINGLE = 2_000


def main() -> None:
    """Print the figures of both."""
    _tell("memory", EmbeddedLedger())
    with tempfile.TemporaryDirectory(prefix="duecourse-") as folder:
        store = EmbeddedLedger(disk=LevelDisk(str(Path(folder) / "ledger")))
        _tell("leveldb, synced", store)
        store.close()


def _tell(name: str, store: EmbeddedLedger) -> None:
    tasks = [NewTask(f"t-{n}", "report", PAYLOAD) for n in range(COUNT)]
    singles = [NewTask(f"s-{n}", "report", PAYLOAD, delay_ms=HOUR_MS) for n in range(SINGLE)]
    began = time.perf_counter()
    for start in range(0, COUNT, MAX_ADD):
        store.add(tasks[start : start + MAX_ADD])
    bulk = COUNT / (time.perf_counter() - began)
    began = time.perf_counter()
    for task in singles:
        store.add([task])
    single = SINGLE / (time.perf_counter() - began)
    began = time.perf_counter()
    while claimed := store.claim(Shard(), BATCH, lease_ms=60_000).tasks:
        store.settle(Shard(), [Settlement(t.id, t.tenant, t.token, Ending.DONE) for t in claimed])
    worked = COUNT / (time.perf_counter() - began)
    print(f"{name}: add {MAX_ADD} at a time {bulk:,.0f}/s, one by one {single:,.0f}/s")
    print(f"{name}: claim + settle {BATCH} at a time {worked:,.0f}/s")


if __name__ == "__main__":
    main()
