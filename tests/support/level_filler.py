"""A process that adds to a folder until its files may grow no more, gets room again, goes on, and just ends."""

import os
import resource
import sys

from duecourse.errors import StoreUnavailable
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.embedded.leveldb import LevelDisk
from duecourse.ledger.task import NewTask

ROOM = 300_000
AFTERWARDS = 200
PAYLOAD = '"' + "x" * 5_000 + '"'


def main(folder: str) -> None:
    """Print `added ID` for each answer, and `refused ID` for what the disk had no room for."""
    ledger = EmbeddedLedger(disk=LevelDisk(folder))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))
    number = 0
    while _add(ledger, f"before-{number}"):
        number += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    for number in range(3):
        _add(ledger, f"full-{number}")
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    for number in range(AFTERWARDS):
        _add(ledger, f"after-{number}")
    os._exit(0)


def _add(ledger: EmbeddedLedger, id: str) -> bool:
    try:
        ledger.add([NewTask(id, "work", PAYLOAD)])
    except StoreUnavailable:
        os.write(1, f"refused {id}\n".encode())
        return False
    os.write(1, f"added {id}\n".encode())
    return True


if __name__ == "__main__":
    main(sys.argv[1])
