"""Records of tasks and schedules: a string of bytes, packed and unpacked by its layout."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Any

from duecourse.base.json_text import dump_json
from duecourse.base.times import MAX_INSTANT
from duecourse.errors import FieldError, InvalidInput, TaskDamaged
from duecourse.ledger import layout
from duecourse.ledger.schedule import (
    CATCH_UP_MS,
    TENANT,
    Became,
    Cron,
    Every,
    Fold,
    FormerTime,
    Gap,
    Missed,
    Occurrence,
    Overlap,
    Progress,
    Repeat,
    RRule,
    Rule,
    Schedule,
    StoredSchedule,
)
from duecourse.ledger.task import (
    LOG_BYTES,
    LOG_LENGTH,
    Action,
    Change,
    Ending,
    Entry,
    NewTask,
    RetryPolicy,
    Run,
    Status,
    Task,
    Trigger,
    cut_by,
)

# A task's log as bytes at the end of its record, oldest entry first, by the description in layout.py.

ENTRY_HEAD = Struct(">" + layout.ENTRY.python)
RUN = Struct(">" + layout.RUN.python)
CHANGE = Struct(">" + layout.CHANGE.python)

OUTCOMES = {ord(letter): name.lower() for name, letter in layout.OUTCOMES.items()}
ACTIONS = {ord(letter): Action[name] for name, letter in layout.ACTIONS.items()}
TRIGGERS = {ord("r"): Trigger.RING, ord("t"): Trigger.TIMER, ord("k"): Trigger.TICK, ord("a"): Trigger.TAKE}
TRIGGER_CODES: dict[Trigger | None, int] = {trigger: code for code, trigger in TRIGGERS.items()} | {None: 0}
MOST_LATE_MS = 0xFFFFFFFF
"""Lateness in the entry of a task that was claimed seven weeks late, or later."""


def unpack_log(data: bytes, at: int, count: int) -> tuple[Entry, ...]:
    """The entries that begin at `at`. Raises ValueError where they do not end with the record."""
    entries: list[Entry] = []
    for _ in range(count):
        code, high, low, times, length = ENTRY_HEAD.unpack_from(data, at)
        at += ENTRY_HEAD.size + length
        entries.append(_entry(code, high << 32 | low, times, data[at - length : at]))
    if at != len(data):
        raise ValueError(f"a record of {len(data)} bytes, and its parts are {at}")
    return tuple(entries)


def extend_log(log: tuple[Entry, ...], forgotten: int, run: Run) -> tuple[tuple[Entry, ...], int]:
    """The log with one run more, within its bounds, and how many entries are forgotten by now."""
    log = (*log, run)
    while len(log) > LOG_LENGTH or sum(map(_size, log)) > LOG_BYTES:
        log, forgotten = log[1:], forgotten + 1
    return log, min(forgotten, 0xFFFF)


def _size(entry: Entry) -> int:
    """Bytes of an entry."""
    fixed, text = (RUN, entry.detail) if isinstance(entry, Run) else (CHANGE, entry.by)
    return ENTRY_HEAD.size + fixed.size + len(text.encode())


def _entry(code: int, at: int, times: int, body: bytes) -> Entry:
    if code in OUTCOMES:
        f = RUN.unpack_from(body)
        detail = body[RUN.size :].decode(errors="replace")
        fence, claimed_at = f[1] << 32 | f[2], f[3] << 32 | f[4]
        return Run(f[0], fence, claimed_at, at, OUTCOMES[code], detail, TRIGGERS.get(f[5]), f[6], times)
    c = CHANGE.unpack_from(body)
    by = body[CHANGE.size :].partition(b"\0")[0].decode(errors="replace")
    return Change(at, ACTIONS[code], by, c[0] << 32 | c[1], c[2] << 32 | c[3], times)


# One task as one string of bytes, by the description in layout.py.

FRONT = Struct(">" + layout.FRONT.python)
RULES = Struct(">" + layout.POLICY.python)
REST = Struct(f">{layout.ORIGIN.size}s{RULES.size}s{layout.LENGTHS.python}")
HEAD = Struct(f"{FRONT.format}{layout.ORIGIN.size}s{RULES.size}s{layout.LENGTHS.python}")
"""All of a record that has a fixed place and that a task shows, a token's and a policy's bytes as they are."""
LENGTHS = Struct(">" + layout.LENGTHS.python)
LENGTHS_AT = HEAD.size - LENGTHS.size
BEGUN = Struct(">" + layout.BEGUN.python)
ENDED = Struct(">" + layout.ENDED.python)
BODY = Struct(">" + layout.BODY.python)
VERSION = layout.VERSION

STATUSES = {
    ord(layout.LETTERS["SCHEDULED"]): Status.SCHEDULED,
    ord(layout.LETTERS["LEASE"]): Status.LEASED,
    ord(layout.LETTERS["FINISHED"]): Status.DONE,
    ord(layout.LETTERS["DIED"]): Status.DEAD,
    ord(layout.LETTERS["CANCELLED"]): Status.CANCELLED,
}
LETTER_SCHEDULED, LETTER_BEGUN, LETTER_HANDED, LETTER_WORKED, LETTER_ENDED, LETTER_LEASED = (
    ord(layout.LETTERS[name]) for name in ("SCHEDULED", "BEGUN", "HANDED", "WORKED", "ENDED", "LEASE")
)
BEHIND = frozenset({LETTER_BEGUN, LETTER_HANDED, LETTER_WORKED})
"""Letters at the end of a lease behind a record."""
ENDING_CODES = {ending: ord(layout.OUTCOMES[ending.name]) for ending in Ending}
"""Letters of endings in `last`, and in the arguments of settle.lua."""
NO_TOKEN = bytes(layout.TOKEN.size)
"""Token of a task that was never leased; and, for no fence is 0, of no lease."""
NO_ORIGIN = bytes(layout.ORIGIN.size)
"""Origin of a record that is never sent twice: to a store in the same process, or by a script."""
CALL, KEYED = layout.ORIGIN.at("place"), layout.KEYED >> 8
"""Bytes of an origin that name the call, and the flag in the byte behind them of a request with a key."""
UNREADABLE = (StructError, LookupError, ValueError)
"""Errors of `unpack` for a broken record, one of another version, or one whose payload is absent."""


def stored_id(tenant: str, id: str) -> str:
    """The id under which a task is kept: unique within its shard."""
    return f"{tenant}/{id}"


def lease_end(score: float | bytes | None) -> int:
    """End of a lease by its score in the ledger, 0 for none; another program may have put any number there."""
    return int(min(max(float(score or 0), 0), MAX_INSTANT))


def pack_rest(task: NewTask, origin: bytes) -> bytes:
    """The rest of a fresh record; `origin` has 8 bytes. Raises InvalidInput where a field does not fit."""
    kind, group, notify = task.kind.encode(), task.group.encode(), task.notify.encode()
    payload, state = task.payload.encode(), task.state.encode()
    try:
        rules, by = pack_policy(task.retry), cut_by(task.by).encode()
        head = REST.pack(origin, rules, len(by), len(kind), len(group), len(notify), len(payload))
        tail = len(state).to_bytes(2) + state + bytes(6) if state else b""
        return b"".join((head, by, kind, group, notify, payload, tail))
    except (StructError, OverflowError) as error:
        raise InvalidInput([FieldError("task", f"does not fit into a record: {error}")]) from error


def pack_policy(policy: RetryPolicy) -> bytes:
    """A policy's bytes. Raises StructError where a number does not fit."""
    return _pack_policy(policy.jitter, policy.max_attempts, policy.backoff_ms, policy.factor, policy.max_backoff_ms)


@lru_cache(maxsize=1024)
def _pack_policy(jitter: bool, max_attempts: int, backoff_ms: int, factor: float, max_backoff_ms: int) -> bytes:
    """The same by its fields, which are looked up sooner than a policy is hashed: each add passes here."""
    return RULES.pack(jitter, max_attempts, backoff_ms, round(factor * 100), max_backoff_ms)


def origin(call: bytes, place: int, *, is_keyed: bool) -> bytes:
    """An origin; `call` is a nonce of the call, or the mark of a request with a key, of at least six bytes."""
    return call[:CALL] + (place | layout.KEYED if is_keyed else place).to_bytes(2)


def origin_of(data: bytes) -> bytes:
    """The origin of a packed record, as `pack_rest` got it."""
    return data[FRONT.size : FRONT.size + len(NO_ORIGIN)]


def body_field(sid: str, data: bytes) -> str | None:
    """The field of the tasks' hash that has a record's payload; None where the record has it, or cannot be read."""
    if len(data) <= HEAD.size or not data[1] & layout.APART:
        return None
    at = HEAD.size + sum(LENGTHS.unpack_from(data, LENGTHS_AT)[:-1])
    if len(data) < at + BODY.size:
        return None
    high, low, _ = BODY.unpack_from(data, at)
    return f"{sid}={high << 32 | low}"


def unpack(queue: str, sid: str, data: bytes, lease_expires_at: int = 0, body: bytes | None = None) -> Task:
    """The task in one record, and the end of its lease where the caller knows it.

    `body` is its payload if apart from the record. Raises one of UNREADABLE.
    """
    if data[-1] == LETTER_ENDED:
        return _unpack_over(queue, sid, data, body)
    (
        version, flags, _, entries, trigger, run, attempt, due_high, due, created_high, created,
        generation_high, generation, deadline_high, deadline, claimed_high, claimed, token, origin, policy,
        by_size, kind_size, group_size, notify_size, payload_size,
    ) = HEAD.unpack_from(data)  # fmt: skip
    if version != VERSION:
        raise ValueError(f"the record has version {version}, and this release reads version {VERSION}")
    status_at, status, target, delivery = len(data) - 1, data[-1], "", ""
    if status in BEHIND:
        run, token, claimed_high, claimed, trigger, _ = BEGUN.unpack_from(data, len(data) - BEGUN.size)
        status_at -= BEGUN.size
        if status != LETTER_BEGUN:
            status_at, target, delivery = _handed(data, status, status_at + 1)
        status = LETTER_LEASED
        if data[status_at] != LETTER_SCHEDULED:
            raise ValueError("a lease behind what is not scheduled")
    tenant, _, id = sid.partition("/")
    by_end = HEAD.size + by_size
    kind_end = by_end + kind_size
    group_end = kind_end + group_size
    notify_end = group_end + notify_size
    end = notify_end + payload_size
    untailed = status_at == end and not entries
    state, result, forgotten, log = ("", "", 0, ()) if untailed else _tail(data[:status_at], end, entries)
    payload = data[notify_end:end] if flags < layout.APART else _apart(sid, data, body)
    # Each task that is claimed passes here: what is empty costs as much to decode as what is not.
    return Task(
        id, queue, tenant, data[by_end:kind_end].decode(), data[kind_end:group_end].decode() if group_size else "",
        STATUSES[status], payload.decode(), state, result,
        due_high << 32 | due, created_high << 32 | created, deadline_high << 32 | deadline,
        generation_high << 32 | generation, run, attempt, _unpack_policy(policy),
        token.hex() if token != NO_TOKEN else "", claimed_high << 32 | claimed, log, lease_expires_at,
        data[HEAD.size : by_end].decode(errors="replace") if by_size else "",
        data[group_end:notify_end].decode() if notify_size else "",
        TRIGGERS.get(trigger % layout.AHEAD), forgotten, target, delivery,
        origin[:CALL] if origin[CALL] & KEYED else b"", None,
    )  # fmt: skip


def unpack_sound(queue: str, sid: str, data: bytes, lease_expires_at: int = 0, body: bytes | None = None) -> Task:
    """A task from its record, as `unpack` reads it. Raises TaskDamaged where the record cannot be read."""
    try:
        return unpack(queue, sid, data, lease_expires_at, body)
    except UNREADABLE as error:
        raise TaskDamaged(f"the record of {sid} cannot be read: {error}") from error


def without_lease(data: bytes) -> bytes:
    """A packed record as it was before its lease; one without a lease as it is."""
    letter, status_at = data[-1], len(data) - 1 - BEGUN.size
    if letter == LETTER_LEASED:
        return data[:-1] + bytes([LETTER_SCHEDULED])
    if letter not in BEHIND:
        return data
    if letter != LETTER_BEGUN:
        status_at, _, _ = _handed(data, letter, status_at + 1)
    return data[: status_at + 1]


def _apart(sid: str, data: bytes, body: bytes | None) -> bytes:
    if not body:
        raise LookupError(f"the payload in {body_field(sid, data)} is missing")
    return body


def _handed(data: bytes, letter: int, end: int) -> tuple[int, str, str]:
    """Place of the status before the bytes of a hand-over up to `end`, and its target or its token."""
    if letter == LETTER_WORKED:
        begin = end - len(NO_TOKEN)
        return begin - 1, "", data[begin:end].hex()
    begin = end - 1 - data[end - 1]
    return begin - 1, data[begin : end - 1].decode(), ""


def _unpack_over(queue: str, sid: str, data: bytes, body: bytes | None) -> Task:
    size, high, low, _ = ENDED.unpack_from(data, len(data) - ENDED.size)
    at = len(data) - ENDED.size - size
    begun = data[: max(0, at)]
    if begun[-1] not in (LETTER_BEGUN, LETTER_WORKED):
        raise ValueError("an end without a lease")
    task = unpack(queue, sid, begun, 0, body)
    late = min(max(task.claimed_at - task.due_at, 0), MOST_LATE_MS)
    run = Run(task.run, task.fence, task.claimed_at, high << 32 | low, "done", "", task.trigger, late)
    log, forgotten = extend_log(task.log, task.forgotten, run)
    result = data[at : -ENDED.size].decode()
    return replace(task, status=Status.DONE, result_json=result, log=log, forgotten=forgotten, delivery="")


@lru_cache(maxsize=1024)
def _unpack_policy(packed: bytes) -> RetryPolicy:
    """Many tasks are retried alike: a policy made for each was a fifth of the cost of reading one."""
    jitter, max_attempts, backoff_ms, factor, max_backoff_ms = RULES.unpack(packed)
    return RetryPolicy(max_attempts, backoff_ms, factor / 100, max_backoff_ms, bool(jitter))


def pack_token(token: str) -> bytes:
    """A token's bytes; NO_TOKEN for a text that cannot be one, which matches no lease."""
    try:
        packed = bytes.fromhex(token)
    except ValueError:
        return NO_TOKEN
    return packed if len(packed) == len(NO_TOKEN) and packed.hex() == token else NO_TOKEN


def _tail(data: bytes, at: int, count: int) -> tuple[str, str, int, tuple[Entry, ...]]:
    state_end = at + 2 + int.from_bytes(data[at : at + 2])
    result_end = state_end + 4 + int.from_bytes(data[state_end : state_end + 4])
    state, result = data[at + 2 : state_end].decode(), data[state_end + 4 : result_end].decode()
    return state, result, int.from_bytes(data[result_end : result_end + 2]), unpack_log(data, result_end + 2, count)


# Record of a schedule: its definition is the payload of a task's record, its progress is the state.

LETTERS = {
    Became.LIVE: "L",
    Became.DONE: "D",
    Became.DEAD: "X",
    Became.CANCELLED: "C",
    Became.SKIPPED: "S",
    Became.MISSED: "M",
}
BECAME = {letter: became for became, letter in LETTERS.items()}
OCCURRENCE = re.compile(r"(-?)([0-9a-f.]*)(?:\+(\d+))?([A-Z])")
NONE = "-"
"""Word for no nominal time."""

_DECODER = json.JSONDecoder()


def stored_schedule(tenant: str, id: str) -> str:
    """The id under which a schedule is kept: no task's, for no tenant is called so."""
    return f"{TENANT}/{tenant}/{id}"


def pack_schedule(schedule: Schedule, progress: Progress, call: bytes) -> bytes:
    """The rest of a schedule's record; `call` is 8 bytes of the call that writes it. Raises InvalidInput."""
    return pack_rest(
        NewTask(
            schedule.id,
            schedule.kind,
            _definition(schedule),
            group=schedule.series,
            state=f'"{pack_progress(progress)}||"',
            retry=schedule.retry,
            by=schedule.by,
            notify=schedule.notify,
        ),
        call,
    )


def pack_progress(progress: Progress) -> str:
    """The parts of a schedule's state that are not of scripts alone."""
    nominal = NONE if progress.nominal is None else _hex_instant(progress.nominal)
    counts = (progress.version, nominal, progress.fired, progress.skipped, progress.missed, _packed_zones(progress))
    return f"{' '.join(map(str, counts))}|{''.join(_packed_occurrences(progress.recent))}"


def unpack_schedule(task: Task) -> StoredSchedule:
    """The schedule in a record. Raises TaskDamaged."""
    try:
        tenant, _, id = task.id.partition("/")
        definition, end = _DECODER.raw_decode(task.payload_json, 1)
        schedule = Schedule(
            id=id,
            kind=task.kind,
            rule=_rule(definition),
            payload=task.payload_json[end + 1 : -1],
            queue=task.queue,
            tenant=tenant,
            retry=task.retry,
            notify=task.notify,
            by=task.by,
            **_policies(definition),
        )
        progress = _progress(task.state_json, task.due_at)
        return StoredSchedule(schedule, progress, task.generation, task.created_at, refused=task.attempt - 1)
    except (ValueError, LookupError, TypeError) as error:
        raise TaskDamaged(f"the record of {task.id} cannot be read: {error}") from error


def _definition(schedule: Schedule) -> str:
    """A list of what is not as by default, by its letter, and the payload of occurrences."""
    rule = schedule.rule
    fields = {
        **_repeat(rule.repeat),
        "s": rule.starts_at,
        "z": _unless(rule.time_zone, "UTC"),
        "u": rule.until,
        # A release without `auto` reads what is used; a record without `y` is of such a release, and stays as it is.
        "g": _unless(rule.gap_used, Gap.SHIFT),
        "f": _unless(rule.fold_used, Fold.FIRST),
        "y": "g" * (rule.gap is Gap.AUTO) + "f" * (rule.fold is Fold.AUTO) or None,
        "l": schedule.limit,
        "j": _unless(schedule.jitter_ms, 0),
        "b": _unless(schedule.lead_ms, 0),
        "m": _unless(schedule.missed, Missed.LATEST),
        "a": _unless(schedule.catch_up_ms, CATCH_UP_MS),
        "o": _unless(schedule.overlap, Overlap.ALLOW),
        "d": schedule.deadline_ms,
        "p": schedule.paused or None,
        "of": schedule.of or None,
        "n": schedule.file or None,
        "k": schedule.mark or None,
        "h": schedule.added_by or None,
        "i": int(schedule.starts_at_add) or None,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    return f"[{dump_json(given)},{schedule.payload}]"


def _repeat(repeat: Repeat) -> dict[str, Any]:
    match repeat:
        case Every(every_ms):
            return {"e": every_ms}
        case Cron(expression):
            return {"c": expression}
        case RRule(rule, exdates):
            return {"r": rule, "x": list(exdates) or None}


def _unless(value: Any, default: Any) -> Any:
    return None if value == default else value


def _rule(found: Mapping[str, Any]) -> Rule:
    repeat: Repeat
    if "e" in found:
        repeat = Every(found["e"])
    elif "c" in found:
        repeat = Cron(found["c"])
    else:
        repeat = RRule(found["r"], tuple(found.get("x", ())))
    auto = found.get("y", "")
    gap = Gap.AUTO if "g" in auto else Gap(found.get("g", Gap.SHIFT))
    fold = Fold.AUTO if "f" in auto else Fold(found.get("f", Fold.FIRST))
    return Rule(repeat, found["s"], found.get("z", "UTC"), found.get("u"), gap, fold)


def _policies(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "limit": found.get("l"),
        "jitter_ms": found.get("j", 0),
        "lead_ms": found.get("b", 0),
        "missed": Missed(found.get("m", Missed.LATEST)),
        "catch_up_ms": found.get("a", CATCH_UP_MS),
        "overlap": Overlap(found.get("o", Overlap.ALLOW)),
        "deadline_ms": found.get("d"),
        "paused": bool(found.get("p")),
        "of": found.get("of", ""),
        "file": found.get("n", 0),
        "mark": found.get("k", ""),
        "added_by": found.get("h", ""),
        "starts_at_add": bool(found.get("i")),
    }


def _progress(state: str, due_at: int) -> Progress:
    head, recent, _live, _waiting = json.loads(state).split("|")
    version, nominal, fired, skipped, missed, zones = head.split(" ")
    return Progress(
        version=int(version),
        nominal=None if nominal == NONE else _parsed_instant(nominal),
        next_at=due_at,
        fired=int(fired),
        skipped=int(skipped),
        missed=int(missed),
        zones=zones.partition(",")[0],
        former=_former(zones),
        recent=tuple(_occurrences(recent)),
    )


def _packed_zones(progress: Progress) -> str:
    """The version of the time zones; behind commas, the former one and the nominal time by that."""
    former = progress.former
    return f"{progress.zones},{former.zones},{_hex_instant(former.nominal)}" if former else progress.zones


def _former(word: str) -> FormerTime | None:
    _, *former = word.split(",")
    return FormerTime(former[0], _parsed_instant(former[1])) if former else None


def _packed_occurrences(recent: Iterable[Occurrence]) -> Iterator[str]:
    """Occurrences by the time from each to the next, which is left out where it is the same again."""
    before, usual = 0, 0
    for one in recent:
        gap = one.nominal - before
        word = "" if gap == usual else _hex_instant(gap) if gap >= 0 else f"-{_hex_instant(-gap)}"
        yield f"{word}{f'+{one.besides}' if one.besides else ''}{LETTERS[one.became]}"
        before, usual = one.nominal, gap


def _occurrences(recent: str) -> Iterator[Occurrence]:
    at, gap = 0, 0
    for sign, word, besides, letter in OCCURRENCE.findall(recent):
        if word:
            gap = -_parsed_instant(word) if sign else _parsed_instant(word)
        at += gap
        yield Occurrence(at, BECAME[letter], int(besides or 0))


def _hex_instant(ms: int) -> str:
    """Milliseconds as hexadecimal digits of the seconds, and of the milliseconds behind a point."""
    seconds, rest = divmod(ms, 1000)
    return f"{seconds:x}.{rest:x}" if rest else f"{seconds:x}"


def _parsed_instant(word: str) -> int:
    seconds, _, ms = word.partition(".")
    return int(seconds, 16) * 1000 + int(ms or "0", 16)
