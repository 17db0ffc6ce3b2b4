"""The work of a storm's tasks: each start and each end is one line of a file, which no kill can take back."""

import json
import os
import signal
import time
import zlib
from pathlib import Path

from duecourse import Again, Done, Retry, Task

LOG = os.environ.get("STORM_LOG") or Path(__file__).with_name("log.txt").read_text()
"""The file of all runs; a function has its name beside it, for it has no variables but its template's."""
SLOW_S = (0.5, 1.0, 2.0, 4.0)


def note(task: Task, what: str, **more: str) -> None:
    """Append one line to the file of all runs; O_APPEND writes it whole."""
    said = {
        "at": time.time_ns() // 1_000_000, "what": what, "id": task.id, "queue": task.queue, "kind": task.kind,
        "v": task.payload.get("v"), "run": task.run, "attempt": task.attempt, "fence": task.fence, "due": task.due_at,
        "pid": os.getpid(), **more,
    }  # fmt: skip
    log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(log, (json.dumps(said) + "\n").encode())
    finally:
        os.close(log)


def _result(task: Task) -> Done:
    return Done({"fence": task.fence, "v": task.payload.get("v")})


def work(task: Task) -> Done | Again | Retry:
    """Do what the second word of the kind says: quick, slow, flaky (fails once), loop (three runs), tick, killer."""
    how = task.kind.partition(".")[2]
    note(task, "begin")
    if how == "killer":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "slow":
        time.sleep(SLOW_S[zlib.crc32(task.id.encode()) % len(SLOW_S)])
    outcome: Done | Again | Retry = _result(task)
    if how == "flaky" and task.attempt == 1:
        outcome = Retry(after=1, error="the first attempt fails")
    turns = (task.state or 0) + 1
    if how == "loop" and turns < 3:
        outcome = Again(after=0.5, state=turns)
    note(task, "end", outcome=type(outcome).__name__)
    return outcome
