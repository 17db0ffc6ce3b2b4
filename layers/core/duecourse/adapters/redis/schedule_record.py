"""A schedule as a record: its definition is the payload, its progress is the state (lua/modules/series.lua)."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from duecourse.adapters.redis.record import pack_rest
from duecourse.domain.schedule import (
    CATCH_UP_MS,
    TENANT,
    Became,
    Cron,
    Every,
    Fold,
    FormerTime,
    Gap,
    Kept,
    Missed,
    Occurrence,
    Overlap,
    Progress,
    Repeat,
    RRule,
    Rule,
    Schedule,
)
from duecourse.domain.task import NewTask, Task, dump_json
from duecourse.errors import TaskDamaged

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
    nominal = NONE if progress.nominal is None else _word(progress.nominal)
    counts = (progress.version, nominal, progress.fired, progress.skipped, progress.missed, _zones_word(progress))
    return f"{' '.join(map(str, counts))}|{''.join(_words(progress.recent))}"


def unpack_schedule(task: Task) -> Kept:
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
        return Kept(schedule, progress, task.generation, task.created_at, refused=task.attempt - 1)
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
    }


def _progress(state: str, due_at: int) -> Progress:
    head, recent, _live, _waiting = json.loads(state).split("|")
    version, nominal, fired, skipped, missed, zones = head.split(" ")
    return Progress(
        version=int(version),
        nominal=None if nominal == NONE else _instant(nominal),
        next_at=due_at,
        fired=int(fired),
        skipped=int(skipped),
        missed=int(missed),
        zones=zones.partition(",")[0],
        former=_former(zones),
        recent=tuple(_occurrences(recent)),
    )


def _zones_word(progress: Progress) -> str:
    """The version of the time zones; behind commas, the former one and the nominal time by that."""
    former = progress.former
    return f"{progress.zones},{former.zones},{_word(former.nominal)}" if former else progress.zones


def _former(word: str) -> FormerTime | None:
    _, *former = word.split(",")
    return FormerTime(former[0], _instant(former[1])) if former else None


def _words(recent: Iterable[Occurrence]) -> Iterator[str]:
    """Occurrences by the time from each to the next, which is left out where it is the same again."""
    before, usual = 0, 0
    for one in recent:
        gap = one.nominal - before
        word = "" if gap == usual else _word(gap) if gap >= 0 else f"-{_word(-gap)}"
        yield f"{word}{f'+{one.besides}' if one.besides else ''}{LETTERS[one.became]}"
        before, usual = one.nominal, gap


def _occurrences(recent: str) -> Iterator[Occurrence]:
    at, gap = 0, 0
    for sign, word, besides, letter in OCCURRENCE.findall(recent):
        if word:
            gap = -_instant(word) if sign else _instant(word)
        at += gap
        yield Occurrence(at, BECAME[letter], int(besides or 0))


def _word(ms: int) -> str:
    """Milliseconds as hexadecimal digits of the seconds, and of the milliseconds behind a point."""
    seconds, rest = divmod(ms, 1000)
    return f"{seconds:x}.{rest:x}" if rest else f"{seconds:x}"


def _instant(word: str) -> int:
    seconds, _, ms = word.partition(".")
    return int(seconds, 16) * 1000 + int(ms or "0", 16)
