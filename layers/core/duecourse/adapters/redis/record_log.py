"""A task's log as bytes at the end of its record, oldest entry first, by the description in layout.py."""

from struct import Struct

from duecourse.adapters.redis import layout
from duecourse.domain.history import LOG_BYTES, LOG_LENGTH, Action, Change, Entry, Run, Trigger

HEAD = Struct(">" + layout.ENTRY.python)
RUN = Struct(">" + layout.RUN.python)
CHANGE = Struct(">" + layout.CHANGE.python)

OUTCOMES = {ord(letter): name.lower() for name, letter in layout.OUTCOMES.items()}
DEEDS = {ord(letter): Action[name] for name, letter in layout.DEEDS.items()}
TRIGGERS = {ord("r"): Trigger.RING, ord("t"): Trigger.TIMER, ord("k"): Trigger.TICK, ord("a"): Trigger.TAKE}
OUTCOME_CODES = {outcome: code for code, outcome in OUTCOMES.items()}
DEED_CODES = {action: code for code, action in DEEDS.items()}
TRIGGER_CODES: dict[Trigger | None, int] = {trigger: code for code, trigger in TRIGGERS.items()} | {None: 0}
MOST_TIMES = 255
MOST_LATE_MS = 0xFFFFFFFF
"""Lateness in the entry of a task that was claimed seven weeks late, or later."""
FOLDED = frozenset({"release", "undelivered", Action.DEBOUNCED})
"""Entries that are counted, not repeated, if one follows another of its kind."""


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


def pack_entry(entry: Entry) -> bytes:
    """One entry."""
    if isinstance(entry, Run):
        code, at, detail = OUTCOME_CODES[entry.outcome], entry.ended_at, entry.detail.encode()
        halves = (*_halves(entry.fence), *_halves(entry.claimed_at))
        body = RUN.pack(entry.run, *halves, TRIGGER_CODES[entry.trigger], entry.late_ms) + detail
    else:
        code, at = DEED_CODES[entry.action], entry.at
        body = CHANGE.pack(*_halves(entry.due_before), *_halves(entry.due_at)) + entry.by.encode()
    return HEAD.pack(code, *_halves(at), entry.times, len(body)) + body


def grown(log: tuple[Entry, ...], forgotten: int, entry: Entry) -> tuple[tuple[Entry, ...], int]:
    """The log with one entry more, within its bounds, and how many are forgotten by now."""
    if log and _name(log[-1]) == _name(entry) and _name(entry) in FOLDED:
        entry, log = _folded(log[-1], entry), log[:-1]
    log = (*log, entry)
    sizes = [len(pack_entry(one)) for one in log]
    gone = max(0, len(log) - LOG_LENGTH)
    while sum(sizes[gone:]) > LOG_BYTES:
        gone += 1
    return log[gone:], min(forgotten + gone, 0xFFFF)


def _folded(last: Entry, entry: Entry) -> Entry:
    times = min(last.times + 1, MOST_TIMES)
    if isinstance(entry, Change) and isinstance(last, Change):
        return entry._replace(times=times, due_before=last.due_before)
    return entry._replace(times=times)


def _name(entry: Entry) -> str:
    return entry.outcome if isinstance(entry, Run) else entry.action


def _entry(code: int, at: int, times: int, body: bytes) -> Entry:
    if code in OUTCOMES:
        f = RUN.unpack_from(body)
        detail = body[RUN.size :].decode(errors="replace")
        fence, claimed_at = f[1] << 32 | f[2], f[3] << 32 | f[4]
        return Run(f[0], fence, claimed_at, at, OUTCOMES[code], detail, TRIGGERS.get(f[5]), f[6], times)
    c = CHANGE.unpack_from(body)
    by = body[CHANGE.size :].partition(b"\0")[0].decode(errors="replace")
    return Change(at, DEEDS[code], by, c[0] << 32 | c[1], c[2] << 32 | c[3], times)


def _halves(number: int) -> tuple[int, int]:
    return number >> 32, number & 0xFFFFFFFF
