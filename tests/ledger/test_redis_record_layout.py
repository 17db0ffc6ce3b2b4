"""The layout of the record, as the scripts write it, on every server."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import redis

from duecourse.ledger.keys import keys_of
from duecourse.ledger.layout import INSIDE, VERSION
from duecourse.ledger.operation_types import Move
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.record import ENTRY_HEAD, FRONT, unpack
from duecourse.ledger.task import Action, Change, Ending, Entry, OnDuplicate, Task
from tests.support.ledger import SHARD, add, claim, claim_one, lease_of, settle, stored_task
from tests.support.python_record import StoredRecord, decode, encode, pack_entry
from tests.support.redis_server import EVERY

REDIS_SERVERS = EVERY
ORIGIN_AT = FRONT.size
SMALL = '{"é": 1}'
LARGEST_INSIDE = '"' + "x" * (INSIDE - 2) + '"'
APART = '"' + "x" * (INSIDE - 1) + '"'
MARK = 9
"""What a move's entry has behind its caller, bytes."""
OVER = ["moved", "replaced", "debounced", "succeeded", "replayed", "cancelled", "full"]
ENDED = {
    "again": Ending.AGAIN,
    "retried": Ending.RETRY,
    "released": Ending.RELEASE,
    "done": Ending.DONE,
    "dead": Ending.DROP,
}
STEPS = ["added", "saved", "again", "retried", "released", "dead", *OVER]
BEHIND = {"leased": b"L", "done": b"D"}
"""Steps that add to a record and leave it as it is."""


@pytest.fixture
def ledger(redis_client: redis.Redis) -> Ledger:
    return Ledger(redis_client)


def bring(ledger: Ledger, step: str, payload: str) -> None:
    """One task brought so far, with all the fields that a task may have."""
    fields = {"payload": payload, "group": "g", "deadline_ms": 60_000, "state": '{"n": 0}', "by": "ich"}
    if step in {"added", *OVER}:
        add(ledger, delay_ms=9, notify="http://a.example/é", **fields)
        do_more(ledger, step, fields)
        return
    task = claim_one(ledger, **fields)
    if step == "saved":
        ledger.save(SHARD, lease_of(task), '{"n": 1}')
    elif step != "leased":
        how = ENDED[step]
        settle(ledger, task, how, detail="why", result='{"r": 1}' if how is Ending.DONE else "")


def do_more(ledger: Ledger, step: str, fields: dict[str, Any]) -> None:
    """What callers do to a scheduled task."""
    if step == "moved":
        ledger.move("default", [Move("a", delay_ms=99_999, by="du")])
    elif step in {"replaced", "debounced"}:
        mode = OnDuplicate.REPLACE if step == "replaced" else OnDuplicate.DEBOUNCE
        for by in ("er", "sie sagt"):
            add(ledger, delay_ms=10_000, on_duplicate=mode, **fields | {"by": by})
    elif step == "succeeded":
        task = claim_now(ledger)
        add(ledger, on_duplicate=OnDuplicate.REPLACE, **fields)
        settle(ledger, task, Ending.RETRY, detail="x")
    elif step == "replayed":
        settle(ledger, claim_now(ledger), Ending.DROP, detail="x")
        ledger.replay("default", ["a"], by="wir", delays_ms=[7])
    elif step == "cancelled":
        ledger.cancel("default", ["a"], by="ihr")
    elif step == "full":
        for n in range(40):
            settle(ledger, claim_now(ledger), Ending.AGAIN if n % 3 else Ending.RELEASE, delay_ms=9, detail="é" * n)


def claim_now(ledger: Ledger) -> Task:
    ledger.move("default", [Move("a", by="x")])
    (task,) = claim(ledger)
    return task


def without_marks(written: bytearray, log: Sequence[Entry]) -> bytearray:
    """The record without what tells a re-sent move, which is Redis's alone as well: NUL and 8 bytes behind by whom."""
    marked = [MARK if isinstance(entry, Change) and entry.action is Action.MOVED else 0 for entry in log]
    sizes = [len(pack_entry(entry)) for entry in log]
    end = len(written) - 1  # the status
    at = end - sum(sizes) - sum(marked)
    for size, mark in zip(sizes, marked, strict=True):
        if mark:
            length_at = at + ENTRY_HEAD.size - 2
            length = int.from_bytes(written[length_at : length_at + 2]) - mark
            written[length_at : length_at + 2] = length.to_bytes(2)
            del written[at + size : at + size + mark]
        at += size
    return written


@pytest.mark.parametrize("payload", [SMALL, LARGEST_INSIDE, APART], ids=["small", "largest inside", "apart"])
@pytest.mark.parametrize("step", STEPS)
def test_a_record_that_the_scripts_wrote_is_what_python_would_write(
    ledger: Ledger, redis_client: redis.Redis, step: str, payload: str
) -> None:
    bring(ledger, step, payload)
    fields = redis_client.hgetall(keys_of("duecourse", SHARD).tasks)
    written = bytearray(fields.pop(b"-/a"))
    bodies = [body for name, body in fields.items() if b"=" in name]
    assert written[0] == VERSION == 5
    assert bodies == ([APART.encode()] if payload == APART else []), "one, and none that is left over"
    read = decode("default", "-/a", bytes(written), *bodies)
    assert read.task.payload_json == payload
    again = bytearray(encode(read))
    written = without_marks(written, read.task.log)
    for data in (written, again):  # what tells a re-sent add is Redis's alone
        data[ORIGIN_AT : ORIGIN_AT + 8] = bytes(8)
    assert again == written


@pytest.mark.parametrize("runs", [0, 30], ids=["first run", "full log"])
@pytest.mark.parametrize("step", BEHIND)
def test_what_is_added_behind_a_record_is_read_as_if_it_were_in_it(
    ledger: Ledger, redis_client: redis.Redis, step: str, runs: int
) -> None:
    add(ledger, group="g", payload='{"é": 1}', state='{"n": 0}', by="ich", deadline_ms=60_000)
    for _ in range(runs):
        settle(ledger, claim_now(ledger), Ending.AGAIN, delay_ms=9, detail="é" * 100)
    task = claim_now(ledger)
    if step == "done":
        settle(ledger, task, Ending.DONE, result='{"ü": 1}')
    written = bytes(redis_client.hget(keys_of("duecourse", SHARD).tasks, "-/a") or b"")
    assert written[-1:] == BEHIND[step]
    shown = stored_task(ledger)
    ledger.move("default", [Move("a", delay_ms=9, force=True, revive=True)])
    folded = stored_task(ledger)
    *log, _ = folded.log
    assert unpack("default", "-/a", encode(StoredRecord(shown))) == replace(shown, lease_expires_at=0)
    if step == "done":
        assert (shown.result_json, shown.log[-1].outcome) == ('{"ü": 1}', "done")
        assert log == list(shown.log[len(shown.log) - len(log) :])
    else:
        taken = log[-1]
        assert (taken.run, taken.fence, taken.claimed_at) == (task.run, task.fence, task.claimed_at)
        assert taken.trigger is task.trigger is shown.trigger
