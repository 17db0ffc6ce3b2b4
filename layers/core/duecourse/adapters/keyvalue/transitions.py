"""What each verb makes of one task: pure functions from a held task to the next."""

from collections.abc import Callable

from duecourse.adapters.keyvalue.held import Held
from duecourse.adapters.record import ENDINGS, pack_token
from duecourse.adapters.record_log import MOST_LATE_MS, grown
from duecourse.domain.backoff import delay_of_lease_ms
from duecourse.domain.deadline import counted_from
from duecourse.domain.history import Change, Deed, Door, Entry, Run, cut_by, cut_detail
from duecourse.domain.outcomes import Ending, Settlement
from duecourse.domain.task import FENCE_DIGITS, NewTask, Status, Task
from duecourse.ports.store import FIRST_DELAY_MS, LONGEST_DELAY_MS, MOST_UNDELIVERED, Move, Settled

ANSWERS = {
    Ending.DONE: Settled.DONE,
    Ending.AGAIN: Settled.AGAIN,
    Ending.RETRY: Settled.RETRIED,
    Ending.DROP: Settled.DEAD,
    Ending.RELEASE: Settled.RELEASED,
    Ending.FAILED: Settled.RETRIED,
    Ending.UNDELIVERED: Settled.RELEASED,
}
REPLACED, DEBOUNCED = 2, 3
"""How a record came, as `flags` keeps it."""
LAPSED = "the lease lapsed"
EXPIRED = "past its deadline"


def fresh(new: NewTask, now: int, generation: int) -> Held:
    """A task as asked for, not yet run."""
    due_at = _instant(new.due_at, new.delay_ms, now)
    task = Task(
        id=new.id,
        queue=new.queue,
        tenant=new.tenant,
        kind=new.kind,
        group=new.group,
        status=Status.SCHEDULED,
        payload_json=new.payload,
        state_json=new.state,
        result_json="",
        due_at=due_at,
        created_at=now,
        deadline_at=_deadline(new, due_at),
        generation=generation,
        run=0,
        attempt=1,
        retry=new.retry,
        token="",
        claimed_at=0,
        log=(),
        by=cut_by(new.by),
        notify=new.notify,
    )
    return Held(task, counts=new.deadline_at is None)


def debounced(new: NewTask, now: int, generation: int, old: Held) -> Held | None:
    """The newest contents, pushed back from the old due time, never past the longest wait; None past its deadline."""
    held = fresh(new, now, generation)
    task = held.task
    created_at = old.task.created_at
    due_at = max(old.task.due_at, min(task.due_at, created_at + new.max_wait_ms))
    task = task._replace(created_at=created_at, due_at=due_at, deadline_at=_deadline(new, due_at), by=old.task.by)
    if 0 < task.deadline_at <= due_at:
        return None
    pushed = Change(now, Deed.DEBOUNCED, cut_by(new.by), old.task.due_at, due_at)
    return held._replace(task=_noted(_with_log(task, old.task), pushed), came=DEBOUNCED)


def replacing(new: Held, old: Held) -> Held:
    """The fresh record with the log of the one that it replaces, and what that one came of."""
    deed = Deed.REPLACED if old.came == REPLACED else Deed.ADDED
    came = Change(old.task.created_at, deed, old.task.by, 0, old.task.due_at)
    return new._replace(task=_noted(_with_log(new.task, old.task), came), came=REPLACED)


def leased(held: Held, now: int, fence: int, nonce: bytes, door: Door, target: str) -> Held:
    """The task under a new lease, of delivery where it has a target."""
    run, token = held.task.run + 1, _token(fence, nonce)
    return _with(held, status=Status.LEASED, run=run, token=token, claimed_at=now, door=door, target=target)


def begun(held: Held, now: int, fence: int, nonce: bytes) -> Held:
    """The handed-over task under the lease of its run."""
    return _with(held, token=_token(fence, nonce), delivery=held.task.token, target="", claimed_at=now)


def overdue(held: Held, now: int) -> Held:
    """The handed-over task that nobody began before its deadline."""
    return held._replace(task=_remember(held.task, now, "expired", EXPIRED)._replace(status=Status.DEAD), last=0)


def undelivered(task: Task, now: int, detail: str) -> Task:
    """The task whose delivery came to nothing: due again later each time, or dead; no attempt is spent."""
    last = task.log[-1] if task.log else None
    times = 1 + (last.times if isinstance(last, Run) and last.outcome == "undelivered" else 0)
    dies = times >= MOST_UNDELIVERED
    task = _remember(task, now, "undelivered", f"undelivered: {detail}" if dies else detail)
    if dies or is_expired(task, now):
        return task._replace(status=Status.DEAD)
    delay_ms = min(FIRST_DELAY_MS * 2 ** (times - 1), LONGEST_DELAY_MS)
    return task._replace(status=Status.SCHEDULED, due_at=now + delay_ms)


def lapsed(held: Held, now: int, ended_at: int) -> Held:
    """The task after its lease ran out: an attempt is spent, but where it was one of delivery.

    It may run again at once, and where its run before lapsed too, once its policy's wait is over.
    """
    if held.task.target:
        detail = f"handed over to {held.task.target}, but the function did not begin it"
        return held._replace(task=undelivered(held.task, now, detail), last=0)
    task, last = held.task, held.task.log[-1] if held.task.log else None
    if isinstance(last, Run) and last.outcome == "lapsed":
        ended_at = now + delay_of_lease_ms(task.retry, task.attempt, task.token)
    return held._replace(task=_retry_or_die(_remember(task, now, "lapsed", LAPSED), now, ended_at), last=0)


def expired(held: Held, now: int) -> Held:
    """The task that nobody claimed before its deadline; the entry has no lease."""
    entry = Run(held.task.run, 0, 0, now, "expired", EXPIRED)
    return held._replace(task=_noted(held.task, entry)._replace(status=Status.DEAD))


def succeeded(held: Held, successor: Held) -> Held:
    """The successor in the task's place; it keeps the token, so that a repeated settle is answered as before."""
    task = replacing(successor, held).task
    return successor._replace(task=task._replace(token=held.task.token, door=held.task.door), last=held.last)


def moved(held: Held, move: Move, now: int, next_fence: Callable[[], int]) -> Held | None:
    """The task at its new due time, one that ran as a new generation; None where that is past its deadline."""
    due_at = _instant(move.due_at, move.delay_ms, now)
    deadline_at = _deadline_when(held, due_at, now)
    if deadline_at is None:
        return None
    task, stays = held.task, held.task.status is Status.SCHEDULED and not held.task.run and held.task.due_at == due_at
    if task.run:
        task = task._replace(generation=next_fence(), run=0, attempt=1, claimed_at=0, token="", door=None)
    log, due_before = task.log, task.due_at
    if stays and log and isinstance(last := log[-1], Change) and last.deed is Deed.MOVED:
        log, due_before = log[:-1], last.due_before  # the same again is told once
    task = _save(task._replace(log=log), move.state)
    task = _noted(task, Change(now, Deed.MOVED, cut_by(move.by), due_before, due_at))
    task = task._replace(status=Status.SCHEDULED, due_at=due_at, deadline_at=deadline_at, result_json="")
    return held._replace(task=task, last=0 if held.task.run else held.last)


def _deadline_when(held: Held, due_at: int, now: int) -> int | None:
    """The deadline of a task that is due at another time; None where it would be dead before it could run."""
    deadline_at = held.task.deadline_at
    if deadline_at and held.counts:
        deadline_at += due_at - counted_from(held.task)
    return deadline_at if not deadline_at or deadline_at > max(due_at, now) else None


def cancelled(held: Held, now: int, by: str) -> Held:
    """The task that nothing can settle any more."""
    task = _noted(held.task, Change(now, Deed.CANCELLED, cut_by(by), held.task.due_at))
    task = task._replace(status=Status.CANCELLED, token="", claimed_at=0, door=None)
    return held._replace(task=task, last=0)


def taken(held: Held, successor: Held | None, now: int) -> Held:
    """The leased task after its lease was taken by force: what waits to replace it is in its place."""
    held = held._replace(task=_remember(held.task, now, "taken", ""), last=0, successor=False)
    return _with(succeeded(held, successor), token="", door=None) if successor else held


def replayed(held: Held, now: int, delay_ms: int, deadline_ms: int, by: str) -> Held:
    """The dead task with all its attempts and a deadline after its due time, 0 for none."""
    due_at = now + delay_ms
    deadline_at = deadline_ms and due_at + deadline_ms
    task = _noted(held.task, Change(now, Deed.REPLAYED, cut_by(by), held.task.due_at, due_at))
    task = task._replace(status=Status.SCHEDULED, attempt=1, deadline_at=deadline_at, due_at=due_at)
    return held._replace(task=task, counts=True)


def settled(held: Held, settlement: Settlement, now: int) -> tuple[Held, Settled]:
    """The task after its lease ended, and the answer to that."""
    given_up = settlement.ending is Ending.UNDELIVERED
    task = undelivered(held.task, now, settlement.detail) if given_up else _end(held.task, settlement, now)
    code = ENDINGS[Ending.RETRY if settlement.ending is Ending.FAILED else settlement.ending]
    if task.status is Status.DEAD:
        return held._replace(task=task, last=ord(code.lower())), Settled.DEAD
    return held._replace(task=task, last=ord(code)), ANSWERS[settlement.ending]


def settled_before(held: Held, settlement: Settlement) -> Settled:
    """The answer to a settlement of a lease that has ended: the first one's where it was the same."""
    ending = Ending.RETRY if settlement.ending is Ending.FAILED else settlement.ending
    code = ENDINGS[ending]
    if held.task.token == settlement.token:
        if held.task.status is Status.LEASED:
            return Settled.STALE
        answers = {ord(code.lower()): Settled.DEAD, ord(code): ANSWERS[ending]}
        return answers.get(held.last, Settled.STALE)
    fence = int.from_bytes(pack_token(settlement.token)[: FENCE_DIGITS // 2])
    endings = (run.outcome for run in held.task.history if run.fence and run.fence == fence)
    return ANSWERS[ending] if next(endings, "") == ending else Settled.STALE


def may_end(held: Held, settlement: Settlement) -> bool:
    """Whether the settlement may end the lease that stands there."""
    task, ending = held.task, settlement.ending
    if task.status is not Status.LEASED:
        return False
    if ending is Ending.FAILED and task.delivery and task.delivery == settlement.token:
        return True
    return task.token == settlement.token and (ending is not Ending.UNDELIVERED or bool(task.target))


def is_expired(task: Task, now: int) -> bool:
    """Whether the task is past its deadline."""
    return 0 < task.deadline_at <= now


def _end(task: Task, settlement: Settlement, now: int) -> Task:
    ending, due_at = settlement.ending, _instant(settlement.due_at, settlement.delay_ms, now)
    if task.target and ending is not Ending.RELEASE:
        task = task._replace(target="")  # its worker did not say that it began, and this is its run
    if ending is Ending.DONE:
        return _remember(task, now, ending, "")._replace(status=Status.DONE, result_json=settlement.result)
    if ending is Ending.DROP:
        return _remember(task, now, ending, settlement.detail)._replace(status=Status.DEAD)
    if ending is Ending.RELEASE:
        given_back = _remember(task, now, ending, settlement.detail)
        return given_back._replace(status=Status.SCHEDULED, due_at=due_at)
    task = _save(task, settlement.state)
    if ending in (Ending.RETRY, Ending.FAILED):
        return _retry_or_die(_remember(task, now, Ending.RETRY, settlement.detail), now, due_at)
    if is_expired(task, now):
        return _remember(task, now, ending, EXPIRED)._replace(status=Status.DEAD)
    return _remember(task, now, ending, "")._replace(status=Status.SCHEDULED, attempt=1, due_at=due_at)


def _retry_or_die(task: Task, now: int, due_at: int) -> Task:
    if task.attempt >= task.retry.max_attempts or is_expired(task, now):
        return task._replace(status=Status.DEAD)
    return task._replace(status=Status.SCHEDULED, attempt=task.attempt + 1, due_at=due_at)


def _remember(task: Task, now: int, outcome: str, detail: str) -> Task:
    late_ms = min(max(0, task.claimed_at - task.due_at), MOST_LATE_MS)
    run = Run(task.run, task.fence, task.claimed_at, now, str(outcome), cut_detail(detail), task.door, late_ms)
    counted = task.run - 1 if task.target else task.run  # what nobody began was no run
    return _noted(task, run)._replace(run=counted, target="", delivery="")


def _token(fence: int, nonce: bytes) -> str:
    return f"{fence:0{FENCE_DIGITS}x}{nonce.hex()}"


def _noted(task: Task, entry: Entry) -> Task:
    log, forgotten = grown(task.log, task.forgotten, entry)
    return task._replace(log=log, forgotten=forgotten)


def _with_log(task: Task, old: Task) -> Task:
    return task._replace(log=old.log, forgotten=old.forgotten)


def _save(task: Task, state: str | None) -> Task:
    return task if state is None else task._replace(state_json=state)


def _with(held: Held, **changes: object) -> Held:
    return held._replace(task=held.task._replace(**changes))  # type: ignore[arg-type]


def _instant(at: int | None, delay_ms: int, now: int) -> int:
    return now + delay_ms if at is None else at


def _deadline(new: NewTask, due_at: int) -> int:
    if new.deadline_at is not None:
        return new.deadline_at
    return 0 if new.deadline_ms is None else due_at + new.deadline_ms
