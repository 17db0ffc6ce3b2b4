"""A task's log as bytes at the end of its record, oldest entry first, by the description in layout.py."""

from struct import Struct

from duecourse.adapters.redis import layout
from duecourse.domain.history import LOG_BYTES, LOG_LENGTH, Action, Change, Entry, Run, Trigger
from duecourse.domain.values import maker

HEAD = Struct(">" + layout.ENTRY.python)
RUN = Struct(">" + layout.RUN.python)
CHANGE = Struct(">" + layout.CHANGE.python)

OUTCOMES = {ord(letter): name.lower() for name, letter in layout.OUTCOMES.items()}
ACTIONS = {ord(letter): Action[name] for name, letter in layout.ACTIONS.items()}
TRIGGERS = {ord("r"): Trigger.RING, ord("t"): Trigger.TIMER, ord("k"): Trigger.TICK, ord("a"): Trigger.TAKE}
TRIGGER_CODES: dict[Trigger | None, int] = {trigger: code for code, trigger in TRIGGERS.items()} | {None: 0}
MOST_LATE_MS = 0xFFFFFFFF
"""Lateness in the entry of a task that was claimed seven weeks late, or later."""


_make_run, _make_change = maker(Run), maker(Change)


def unpack_log(data: bytes, at: int, count: int) -> tuple[Entry, ...]:
    """The entries that begin at `at`. Raises ValueError where they do not end with the record."""
    entries: list[Entry] = []
    for _ in range(count):
        code, high, low, times, length = HEAD.unpack_from(data, at)
        at += HEAD.size + length
        entries.append(_entry(code, high << 32 | low, times, data[at - length : at]))
    if at != len(data):
        raise ValueError(f"a record of {len(data)} bytes, and its parts are {at}")
    return tuple(entries)


def grown(log: tuple[Entry, ...], forgotten: int, run: Run) -> tuple[tuple[Entry, ...], int]:
    """The log with one run more, within its bounds, and how many entries are forgotten by now."""
    log = (*log, run)
    while len(log) > LOG_LENGTH or sum(map(_size, log)) > LOG_BYTES:
        log, forgotten = log[1:], forgotten + 1
    return log, min(forgotten, 0xFFFF)


def _size(entry: Entry) -> int:
    """Bytes of an entry."""
    fixed, text = (RUN, entry.detail) if isinstance(entry, Run) else (CHANGE, entry.by)
    return HEAD.size + fixed.size + len(text.encode())


def _entry(code: int, at: int, times: int, body: bytes) -> Entry:
    if code in OUTCOMES:
        f = RUN.unpack_from(body)
        detail = body[RUN.size :].decode(errors="replace")
        fence, claimed_at = f[1] << 32 | f[2], f[3] << 32 | f[4]
        return _make_run(f[0], fence, claimed_at, at, OUTCOMES[code], detail, TRIGGERS.get(f[5]), f[6], times)
    c = CHANGE.unpack_from(body)
    by = body[CHANGE.size :].partition(b"\0")[0].decode(errors="replace")
    return _make_change(at, ACTIONS[code], by, c[0] << 32 | c[1], c[2] << 32 | c[3], times)
