"""The packed record: what goes in comes out, in the layout that the scripts read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duecourse.base.json_text import dump_json
from duecourse.errors import InvalidInput
from duecourse.ledger import record
from duecourse.ledger.layout import VERSION
from duecourse.ledger.record import BEGUN, ENDED, FRONT, HEAD, UNREADABLE, pack_rest, pack_token, unpack
from duecourse.ledger.task import MAX_PAYLOAD_BYTES, NewTask, RetryPolicy, Run, Status, Trigger, cut_by

ORIGIN = b"origin:8"
SIX_BYTES = 2**48 - 1


def packed(task: NewTask, status: str = "s", count: int = 0, fence: int = 0, at: int = 0, tail: bytes = b"") -> bytes:
    """A record as the scripts write it, with each number at its place."""
    halves = [part for number in (at, at, 7, at, at) for part in (number >> 32, number & 0xFFFFFFFF)]
    token = fence.to_bytes(6) + (b"\x01\x02\x03\x04\x05\x06\x07\x08" if fence else bytes(8))
    front = FRONT.pack(VERSION, 0, 0, count, ord("t"), 3, 2, *halves, token)
    return front + pack_rest(task, ORIGIN) + tail + status.encode()


def entry(outcome: str, run: int, detail: str) -> bytes:
    text = detail.encode()
    body = record.RUN.pack(run, 0, 9, 0, 10, ord("r"), 7) + text
    return record.ENTRY_HEAD.pack(ord(outcome), 0, 11, 1, len(body)) + body


@given(
    kind=st.text(max_size=60),
    notify=st.text(max_size=300),
    by=st.text(max_size=40),
    group=st.text(max_size=60),
    payload=st.dictionaries(st.text(max_size=5), st.integers() | st.booleans(), max_size=3).map(dump_json),
    policy=st.builds(
        RetryPolicy,
        max_attempts=st.integers(1, 1_000),
        backoff_ms=st.integers(0, 2**32 - 1),
        factor=st.integers(100, 10_000).map(lambda n: n / 100),
        max_backoff_ms=st.integers(0, 2**32 - 1),
        jitter=st.booleans(),
    ),
)
def test_what_a_task_was_added_with_comes_out_as_it_went_in(
    kind: str, notify: str, by: str, group: str, payload: str, policy: RetryPolicy
) -> None:
    new = NewTask("a", kind, payload, group=group, retry=policy, by=by, notify=notify)
    task = unpack("default", "tenant/a", packed(new))
    assert (task.id, task.queue, task.tenant) == ("a", "default", "tenant")
    assert (task.by, task.notify) == (cut_by(by), notify)
    assert (task.kind, task.group, task.payload_json, task.retry) == (kind, group, payload, policy)
    assert (task.state_json, task.result_json, task.history, task.token) == ("", "", (), "")


@pytest.mark.parametrize(
    ("letter", "status"),
    [
        ("s", Status.SCHEDULED),
        ("l", Status.LEASED),
        ("d", Status.DONE),
        ("x", Status.DEAD),
        ("c", Status.CANCELLED),
    ],
)
def test_a_state_is_one_letter(letter: str, status: Status) -> None:
    assert unpack("q", "-/a", packed(NewTask("a", "k"), letter)).status is status


def test_instants_and_fences_have_six_bytes() -> None:
    task = unpack("q", "-/a", packed(NewTask("a", "k"), fence=SIX_BYTES, at=SIX_BYTES), 5)
    assert {task.due_at, task.created_at, task.deadline_at, task.claimed_at} == {SIX_BYTES}
    assert (task.fence, task.generation, task.run, task.attempt) == (SIX_BYTES, 7, 3, 2)
    assert (task.token, task.lease_expires_at) == ("ffffffffffff0102030405060708", 5)


def test_state_result_and_history_stand_in_the_tail() -> None:
    state, result = '{"é":1}'.encode(), b'"' + b"x" * 65_534 + b'"'
    tail = len(state).to_bytes(2) + state + len(result).to_bytes(4) + result + b"\x00\x05"
    log = entry("R", 1, "é" * 200) + entry("D", 2, "")
    task = unpack("q", "-/a", packed(NewTask("a", "k"), count=2, tail=tail + log))
    assert (task.state, len(task.result_json)) == ({"é": 1}, 65_536)
    failed = Run(1, 9, 10, 11, "retry", "é" * 200, Trigger.RING, 7)
    assert task.history == (failed, Run(2, 9, 10, 11, "done", "", Trigger.RING, 7))
    assert (task.forgotten, task.trigger) == (5, Trigger.TIMER)


@pytest.mark.parametrize("log", [b"", bytes(8) + entry("R", 1, "why")], ids=["without a log", "with one"])
def test_a_record_that_is_cut_off_or_goes_on_cannot_be_read(log: bytes) -> None:
    data = packed(NewTask("a", "k", "{}"), count=bool(log), tail=log)
    assert unpack("q", "-/a", data).payload == {}
    for broken in (*(data[:length] for length in range(len(data))), data + b"?"):
        with pytest.raises(UNREADABLE):
            unpack("q", "-/a", broken)


def test_a_lease_stands_behind_what_is_scheduled_and_a_good_end_behind_that() -> None:
    begun = packed(NewTask("a", "k", "{}")) + BEGUN.pack(4, bytes(5) + b"\x09tokentok", 0, 10, ord("r"), ord("L"))
    over = begun + b'"D"' + ENDED.pack(3, 0, 11, ord("D"))
    task = unpack("q", "-/a", begun)
    assert (task.status, task.run, task.fence, task.claimed_at, task.trigger) == (Status.LEASED, 4, 9, 10, Trigger.RING)
    done = unpack("q", "-/a", over)
    assert (done.status, done.result, done.log) == (
        Status.DONE,
        "D",
        (Run(4, 9, 10, 11, "done", "", Trigger.RING, 10),),
    )


@pytest.mark.parametrize("status", "ldxc")
def test_a_lease_behind_anything_else_cannot_be_read(status: str) -> None:
    data = packed(NewTask("a", "k", "{}"), status)
    lease, end = BEGUN.pack(4, bytes(14), 0, 10, 0, ord("L")), ENDED.pack(0, 0, 11, ord("D"))
    for broken in (data + lease, data + lease + end, data + end):
        with pytest.raises(UNREADABLE):
            unpack("q", "-/a", broken)


@pytest.mark.parametrize("block", [bytes(25) + b"L", bytes(10) + b"D"], ids=["leases", "ends"])
def test_many_blocks_behind_each_other_cannot_be_read(block: bytes) -> None:
    with pytest.raises(UNREADABLE):
        unpack("q", "-/a", packed(NewTask("a", "k", "{}")) + 20_000 * block)


def test_a_task_may_be_added_with_a_state() -> None:
    assert unpack("q", "-/a", packed(NewTask("a", "k", state='{"n":1}'))).state == {"n": 1}


def test_the_longest_payload_fits() -> None:
    payload = dump_json("x" * (MAX_PAYLOAD_BYTES - 2))
    assert unpack("q", "-/a", packed(NewTask("a", "k", payload))).payload_json == payload


def test_the_bytes_that_the_scripts_go_by_stand_where_they_look() -> None:
    task = NewTask("a", "kind", "{}", group="grp", retry=RetryPolicy(max_attempts=9), by="me", notify="audit")
    rest = pack_rest(task, ORIGIN)
    assert (FRONT.size, rest[:8], rest[8], rest[9:11]) == (55, ORIGIN, 1, b"\x00\x09")
    assert (rest[21:24], rest[24:26], rest[26:30]) == (b"\x02\x04\x03", b"\x00\x05", b"\x00\x00\x00\x02")
    assert (HEAD.size, rest[30:]) == (55 + 30, b"mekindgrpaudit{}")


@pytest.mark.parametrize(
    "task",
    [
        NewTask("a", "k" * 256),
        NewTask("a", "k", group="é" * 128),
        NewTask("a", "k", notify="x" * 65_536),
        NewTask("a", "k", state="x" * 65_536),
        NewTask("a", "k", retry=RetryPolicy(max_attempts=65_536)),
        NewTask("a", "k", retry=RetryPolicy(backoff_ms=2**32)),
        NewTask("a", "k", retry=RetryPolicy(factor=656.0)),
        NewTask("a", "k", retry=RetryPolicy(factor=-1.0)),
    ],
)
def test_what_does_not_fit_is_refused(task: NewTask) -> None:
    with pytest.raises(InvalidInput, match="does not fit"):
        pack_rest(task, ORIGIN)


def test_a_token_begins_with_its_fence() -> None:
    assert pack_token("0000000000080011223344556677") == bytes(5) + b"\x08" + bytes.fromhex("0011223344556677")


@pytest.mark.parametrize(
    "token",
    ["", "8", "zz" * 14, "00" * 13, "00" * 15, "8.0011223344556677", "²" * 28, " ".join(14 * ["ab"]), "AB" * 14],
)
def test_a_text_that_is_no_token_matches_no_lease(token: str) -> None:
    assert pack_token(token) == bytes(14)
