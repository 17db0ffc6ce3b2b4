"""Timeline of a task and its current wait, in words: a pure reading of its record."""

from collections.abc import Iterator
from dataclasses import replace

from duecourse.base.times import MAX_INSTANT, format_instant, span
from duecourse.base.value_classes import brief, value
from duecourse.ledger.queue import THROTTLED, Throttle
from duecourse.ledger.task import ORIGINS, Action, Change, Entry, Run, Status, Task, Trigger

FOUND = {
    Trigger.RING: "after its bell rang",
    Trigger.TIMER: "by the bridge's timer",
    Trigger.TICK: "by a tick",
    Trigger.TAKE: "by the request that asked",
    None: "by a drain",
}


@value
class Happened:
    """One thing that happened; what does not belong to it is "", 0 or None. Instants are epoch milliseconds."""

    at: int
    event: str
    text: str
    by: str = ""
    run: int = 0
    trigger: Trigger | None = None
    late_ms: int | None = None
    ran_ms: int | None = None
    error: str = ""
    due_at: int = 0
    times: int = 1

    def __repr__(self) -> str:
        return brief(self, "at", "text")


@value
class Waiting:
    """Wait of a task: `due`, `claim`, the reason of a throttled task (a `ThrottleReason`), `lease` or `nothing`.

    `overlap` is that of an occurrence for the end of another. Until when, 0 where that is not known.
    """

    what: str
    text: str
    until: int = 0


@value
class Why:
    """A task, what happened to it, and what it waits for."""

    task: Task
    timeline: list[Happened]
    waits: Waiting

    def __repr__(self) -> str:
        return brief(self, "task", "timeline", "waits")


def timeline(task: Task) -> list[Happened]:
    """All that the task remembers, in order."""
    lives = list(_lives(task))
    dues = [_first_due(rest, origin.due_at) for origin, rest in lives]
    if task.forgotten:
        dues[0] = 0
    entries: list[Entry] = []
    for (origin, rest), due_at in zip(lives, dues, strict=True):
        entries += [replace(origin, due_at=due_at), *rest]
    happened = [one for entry in entries for one in _entries(entry)]
    if task.status is Status.LEASED:
        happened.append(_leased(task))
    return sorted(happened, key=lambda one: one.at)


def _lives(task: Task) -> Iterator[tuple[Change, tuple[Entry, ...]]]:
    """Each add or replacement, with the entries that followed it; last the one that made the record itself."""
    begin = 0
    for number, entry in enumerate(task.log):
        if isinstance(entry, Change) and entry.action in ORIGINS:
            yield entry, task.log[begin:number]
            begin = number + 1
    action = Action.REPLACED if begin else Action.ADDED
    yield Change(task.created_at, action, task.by, 0, task.due_at), task.log[begin:]


def _first_due(rest: tuple[Entry, ...], due_at: int) -> int:
    """The first due time of a task, from its first entry; 0 if that entry does not have it."""
    match rest:
        case (Change() as change, *_):
            return change.due_before
        case (Run() as run, *_):
            return run.claimed_at and run.claimed_at - run.late_ms
    return due_at


def waiting(task: Task, throttle: Throttle) -> Waiting:
    """Current wait of the task, given why due tasks of its tenant are throttled."""
    now = throttle.now
    if task.status is Status.SCHEDULED:
        return _until_claimed(task, throttle)
    if task.status is not Status.LEASED:
        return Waiting("nothing", ENDS[task.status])
    if task.lease_expires_at <= now:
        return Waiting(
            "lease", "Its lease has lapsed: the next claim or tick takes the task back.", task.lease_expires_at
        )
    until = format_instant(task.lease_expires_at)
    text = f"It is running, under a lease until {until}."
    if task.target:
        text = f"It was handed over to {task.target}, which has not begun it yet; at {until} it goes back."
    return Waiting("lease", text + _unsettled(task), task.lease_expires_at)


ENDS = {
    Status.DONE: "It is done.",
    Status.DEAD: "It is dead: replay or delete it.",
    Status.CANCELLED: "It was cancelled.",
}


def _until_claimed(task: Task, throttle: Throttle) -> Waiting:
    if task.due_at == MAX_INSTANT and task.id.startswith(f"{task.group}@"):
        return Waiting("overlap", "It waits for the end of the occurrence before it.")
    unsettled = _unsettled(task)
    if task.due_at > throttle.now:
        text = f"It is due in {span(task.due_at - throttle.now)}, at {format_instant(task.due_at)}."
        return Waiting("due", text + unsettled, task.due_at)
    since = f"It has been due for {span(throttle.now - task.due_at)}"
    if throttle.reason:
        until = f", until {format_instant(throttle.until)}" if throttle.until else ""
        return Waiting(throttle.reason, f"{since}; {THROTTLED[throttle.reason]}{until}.{unsettled}", throttle.until)
    return Waiting("claim", f"{since}, and waits for a claim, by a ring or by the next tick.{unsettled}")


UNSETTLED = {
    "undelivered": " Its last delivery came to nothing{times}: {detail}. A function that returns without a `begin` or "
    "a `settle` shows so; so does one that ends before its handler runs.",
    "lapsed": " Its last run ended without a settle{times}: its process died or stood still, or its function returned "
    "without one.",
}
"""Sentences on the run before, by how it ended."""


def _unsettled(task: Task) -> str:
    """Sentence on the newest run of a task, where it ended without a settle; "" for others."""
    last = task.log[-1] if task.log else None
    if not isinstance(last, Run) or last.outcome not in UNSETTLED:
        return ""
    times = f", {last.times} times in a row" if last.times > 1 else ""
    return UNSETTLED[last.outcome].format(times=times, detail=last.detail)


def _entries(entry: Entry) -> Iterator[Happened]:
    if isinstance(entry, Change):
        due_at = entry.due_at if entry.due_at < MAX_INSTANT else 0
        yield Happened(entry.at, entry.action, _action(entry), entry.by, due_at=due_at, times=entry.times)
        return
    if entry.claimed_at and entry.outcome in UNKNOWN:
        yield _found("Claimed", entry.run, entry.claimed_at, entry.trigger, entry.late_ms)
    elif entry.claimed_at and entry.outcome != "undelivered":
        yield _began(entry.run, entry.claimed_at, entry.trigger, entry.late_ms)
    ran_ms = max(0, entry.ended_at - entry.claimed_at) if entry.claimed_at else None
    text = _outcome(entry, ran_ms)
    error = entry.detail
    yield Happened(entry.ended_at, entry.outcome, text, run=entry.run, ran_ms=ran_ms, error=error, times=entry.times)


def _leased(task: Task) -> Happened:
    """Claim of a task under a lease; its handler has begun for sure only in a function that says so."""
    after_ms = max(0, task.claimed_at - task.due_at)
    if task.delivery:
        return _began(task.run, task.claimed_at, task.trigger, after_ms)
    done = "Handed over" if task.target else "Claimed"
    return _found(done, task.run, task.claimed_at, task.trigger, after_ms)


def _found(done: str, run: int, at: int, trigger: Trigger | None, after_ms: int) -> Happened:
    text = f"{done} {FOUND[trigger]}, {span(after_ms)} after it was due: run {run}."
    return Happened(at, "claimed", text, run=run, trigger=trigger)


def _began(run: int, at: int, trigger: Trigger | None, late_ms: int) -> Happened:
    text = f"Claimed {FOUND[trigger]}, and begun {span(late_ms)} after it was due: run {run}."
    return Happened(at, "claimed", text, run=run, trigger=trigger, late_ms=late_ms)


def _action(entry: Change) -> str:
    times = f", {entry.times} times in a row" if entry.times > 1 else ""
    by = f" by {entry.by}" if entry.by else ""
    due = f", due {_instant(entry.due_at)}" if entry.due_at else ""
    before = f" instead of {_instant(entry.due_before)}" if 0 < entry.due_before != entry.due_at > 0 else ""
    return f"{entry.action.capitalize()}{by}{times}{due}{before}."


def _instant(at: int) -> str:
    """A due time; that of an occurrence which waits for the end of another is none."""
    return format_instant(at) if at < MAX_INSTANT else "after another"


UNKNOWN = frozenset({"release", "lapsed", "taken", "expired"})
"""Outcomes of leases whose handler may never have begun."""
OUTCOMES = {
    "done": "Done{after}",
    "again": "Not yet{after}: to run again",
    "retry": "Failed{after}, an attempt spent",
    "drop": "Dropped{after}, failed for good",
    "release": "Given back{after}, no attempt spent",
    "lapsed": "Its lease lapsed unsettled{after}, an attempt spent",
    "undelivered": "Given back{after}, not begun, no attempt spent",
    "taken": "Its lease was taken by force{after}",
    "expired": "Past its deadline before it was claimed",
}


def _outcome(run: Run, ran_ms: int | None) -> str:
    said = OUTCOMES[run.outcome].format(after=f" after {span(ran_ms)}" if ran_ms is not None else "")
    times = f", {run.times} times in a row" if run.times > 1 else ""
    why = f": {run.detail.removesuffix('.')}" if run.detail else ""
    return f"{said}{times}{why}."
