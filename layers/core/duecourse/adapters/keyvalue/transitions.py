"""What each verb makes of one task: pure functions from a held task to the next."""

from duecourse.adapters.keyvalue.held import Held
from duecourse.adapters.record import ENDINGS, pack_token
from duecourse.adapters.record_log import MOST_LATE_MS, grown
from duecourse.domain.history import Change, Deed, Door, Entry, Run, cut_by, cut_detail
from duecourse.domain.outcomes import Ending, Settlement
from duecourse.domain.task import FENCE_DIGITS, NewTask, Status, Task
from duecourse.ports.store import Move, Settled

ANSWERS = {
    Ending.DONE: Settled.DONE,
    Ending.AGAIN: Settled.AGAIN,
    Ending.RETRY: Settled.RETRIED,
    Ending.DROP: Settled.DEAD,
    Ending.RELEASE: Settled.RELEASED,
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
    return Held(task)


def debounced(new: NewTask, now: int, generation: int, old: Held) -> Held:
    """The newest contents, pushed back from the old due time, never past the longest wait."""
    task = fresh(new, now, generation).task
    created_at = old.task.created_at
    due_at = max(old.task.due_at, min(task.due_at, created_at + new.max_wait_ms))
    task = task._replace(created_at=created_at, due_at=due_at, deadline_at=_deadline(new, due_at), by=old.task.by)
    pushed = Change(now, Deed.DEBOUNCED, cut_by(new.by), old.task.due_at, due_at)
    return Held(_noted(_with_log(task, old.task), pushed), came=DEBOUNCED)


def replacing(new: Held, old: Held) -> Held:
    """The fresh record with the log of the one that it replaces, and what that one came of."""
    deed = Deed.REPLACED if old.came == REPLACED else Deed.ADDED
    came = Change(old.task.created_at, deed, old.task.by, 0, old.task.due_at)
    return new._replace(task=_noted(_with_log(new.task, old.task), came), came=REPLACED)


def leased(held: Held, now: int, fence: int, nonce: bytes, door: Door) -> Held:
    """The task under a new lease."""
    run, token = held.task.run + 1, f"{fence:0{FENCE_DIGITS}x}{nonce.hex()}"
    return _with(held, status=Status.LEASED, run=run, token=token, claimed_at=now, door=door)


def lapsed(held: Held, now: int) -> Held:
    """The task after its lease ran out: an attempt is spent."""
    task = _remember(held.task, now, "lapsed", LAPSED)
    return held._replace(task=_retry_or_die(task, now, task.due_at), last=0)


def expired(held: Held, now: int) -> Held:
    """The task that nobody claimed before its deadline; the entry has no lease."""
    entry = Run(held.task.run, 0, 0, now, "expired", EXPIRED)
    return held._replace(task=_noted(held.task, entry)._replace(status=Status.DEAD))


def succeeded(held: Held, successor: Held) -> Held:
    """The successor in the task's place; it keeps the token, so that a repeated settle is answered as before."""
    task = replacing(successor, held).task
    return successor._replace(task=task._replace(token=held.task.token, door=held.task.door), last=held.last)


def moved(held: Held, move: Move, now: int, generation: int) -> Held:
    """The task at its new due time; one that ran begins anew under `generation`."""
    due_at = _instant(move.due_at, move.delay_ms, now)
    stays = held.task.status is Status.SCHEDULED and not held.task.run and held.task.due_at == due_at
    held = _taken(held, now)
    if held.task.run:
        held = _with(held, generation=generation, run=0, attempt=1, claimed_at=0, token="", door=None)._replace(last=0)
    task = _save(held.task, move.state)
    if not stays:
        task = _noted(task, Change(now, Deed.MOVED, cut_by(move.by), held.task.due_at, due_at))
    return held._replace(task=task._replace(status=Status.SCHEDULED, due_at=due_at, result_json=""), successor=False)


def cancelled(held: Held, now: int, by: str) -> Held:
    """The task that nothing can settle any more."""
    task = _noted(_taken(held, now).task, Change(now, Deed.CANCELLED, cut_by(by), held.task.due_at))
    return Held(task._replace(status=Status.CANCELLED, token="", claimed_at=0, door=None), came=held.came)


def replayed(held: Held, now: int, delay_ms: int, deadline_ms: int, by: str) -> Held:
    """The dead task with all its attempts and a deadline after its due time, 0 for none."""
    due_at = now + delay_ms
    deadline_at = deadline_ms and due_at + deadline_ms
    task = _noted(held.task, Change(now, Deed.REPLAYED, cut_by(by), held.task.due_at, due_at))
    return held._replace(task=task._replace(status=Status.SCHEDULED, attempt=1, deadline_at=deadline_at, due_at=due_at))


def settled(held: Held, settlement: Settlement, now: int) -> tuple[Held, Settled]:
    """The task after its lease ended, and the answer to that."""
    task = _end(held.task, settlement, now)
    code = ENDINGS[settlement.ending]
    if task.status is Status.DEAD:
        return held._replace(task=task, last=ord(code.lower())), Settled.DEAD
    return held._replace(task=task, last=ord(code)), ANSWERS[settlement.ending]


def settled_before(held: Held, settlement: Settlement) -> Settled:
    """The answer to a settlement of a lease that has ended: the first one's where it was the same."""
    code = ENDINGS[settlement.ending]
    if held.task.token == settlement.token:
        answers = {ord(code.lower()): Settled.DEAD, ord(code): ANSWERS[settlement.ending]}
        return answers.get(held.last, Settled.STALE)
    fence = int.from_bytes(pack_token(settlement.token)[: FENCE_DIGITS // 2])
    endings = (run.outcome for run in held.task.history if run.fence and run.fence == fence)
    return ANSWERS[settlement.ending] if next(endings, "") == settlement.ending else Settled.STALE


def is_expired(task: Task, now: int) -> bool:
    """Whether the task is past its deadline."""
    return 0 < task.deadline_at <= now


def _end(task: Task, settlement: Settlement, now: int) -> Task:
    ending, due_at = settlement.ending, _instant(settlement.due_at, settlement.delay_ms, now)
    if ending is Ending.DONE:
        return _remember(task, now, ending, "")._replace(status=Status.DONE, result_json=settlement.result)
    if ending is Ending.DROP:
        return _remember(task, now, ending, settlement.detail)._replace(status=Status.DEAD)
    if ending is Ending.RELEASE:
        given_back = _remember(task, now, ending, settlement.detail)
        return given_back._replace(status=Status.SCHEDULED, due_at=due_at)
    task = _save(task, settlement.state)
    if ending is Ending.RETRY:
        return _retry_or_die(_remember(task, now, ending, settlement.detail), now, due_at)
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
    return _noted(task, run)


def _taken(held: Held, now: int) -> Held:
    """The task as it is; where it runs, with the end of that: its lease is taken by force."""
    leased = held.task.status is Status.LEASED
    return held._replace(task=_remember(held.task, now, "taken", "")) if leased else held


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
