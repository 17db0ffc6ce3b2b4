"""A process that adds, claims and settles in a folder until it is killed, and prints each answer."""

import os
import random
import sys

from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.embedded.leveldb import LevelDisk
from duecourse.ledger.task import Ending, NewTask, Settlement, Shard

LEASE_MS = 300
MOST = 200
"""Tasks at a time: large writes take long enough for a kill to fall into one."""


def main(folder: str, name: str) -> None:
    """Work until killed."""
    ledger, rng = EmbeddedLedger(disk=LevelDisk(folder)), random.Random(name)
    _tell("open")
    for number in range(1_000_000):
        ids = [f"{name}-{number}-{part}" for part in range(rng.randint(1, MOST))]
        ledger.add([NewTask(id, "work", group=f"{name}-{number}") for id in ids])
        _tell("added", *ids)
        tasks = ledger.claim(Shard(), rng.randint(1, MOST), lease_ms=LEASE_MS).tasks
        _tell("leased", *(task.id for task in tasks))
        ends = [Settlement(task.id, task.tenant, task.token, Ending.DONE) for task in tasks if rng.random() < 0.8]
        ledger.settle(Shard(), ends)
        _tell("done", *(end.id for end in ends))


def _tell(*words: str) -> None:
    os.write(1, " ".join(words).encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
