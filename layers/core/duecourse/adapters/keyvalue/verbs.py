"""What each verb does to one task of a shard's ledger: the design's table, row by row."""

from collections.abc import Iterator
from itertools import islice

from duecourse.adapters.keyvalue import transitions
from duecourse.adapters.keyvalue.held import Held
from duecourse.adapters.keyvalue.indexes import DEAD, DONE, LEASED
from duecourse.adapters.keyvalue.ledger import Ledger
from duecourse.adapters.pages import LOOK, LOOK_BYTES, Found
from duecourse.adapters.record import stored_id
from duecourse.domain.follow_up import follow_ups
from duecourse.domain.outcomes import Settlement
from duecourse.domain.pages import Place, Wanted
from duecourse.domain.task import FENCE_DIGITS, NewTask, OnDuplicate, Status, Task
from duecourse.ports.store import Alone, Begun, Lease, Move, Reply, Settled

BOUND = 500
"""How many leases one step takes back, and how many finished tasks it forgets."""
LIVE = (Status.SCHEDULED, Status.LEASED)
ENDED = (Status.DONE, Status.DEAD)
FINISHED = (Status.DONE, Status.CANCELLED)
LOST = Begun("", 0, 0)
REFUSALS = {status: Reply(status.value) for status in Status}


def is_taken(ledger: Ledger, tenant: str, alone: Alone) -> bool:
    """Whether a group has a task that is live, or newer than the caller knows."""
    members = ledger.members(tenant, alone.group)
    return any(task.status in LIVE or task.generation > alone.since for task in members)


def add(ledger: Ledger, new: NewTask) -> tuple[Reply, Held | None]:
    """Schedule one task, as its `on_duplicate` says where its id stands already; answers its record as well."""
    sid = stored_id(new.tenant, new.id)
    old = ledger.get(sid)
    if new.apart and (old or ledger.has_member_within(new, new.apart)):
        return Reply.KEPT, old
    if not old or old.task.status in FINISHED:
        return _put(ledger, sid, transitions.fresh(new, ledger.now, ledger.next_fence()), Reply.CREATED)
    status, mode = old.task.status, new.on_duplicate
    if mode is OnDuplicate.KEEP and status is not Status.DEAD:
        return Reply.KEPT, old
    if mode is OnDuplicate.REJECT or (status is Status.DEAD and mode is not OnDuplicate.REPLACE):
        return REFUSALS[status], None
    return _replace(ledger, sid, old, new)


def _replace(ledger: Ledger, sid: str, old: Held, new: NewTask) -> tuple[Reply, Held | None]:
    generation = ledger.next_fence()
    if old.task.status is Status.SCHEDULED and new.on_duplicate is OnDuplicate.DEBOUNCE:
        pushed = transitions.debounced(new, ledger.now, generation, old)
        return _put(ledger, sid, pushed, Reply.DEBOUNCED) if pushed else (Reply.PAST_DEADLINE, None)
    held = transitions.fresh(new, ledger.now, generation)._replace(came=transitions.REPLACED)
    if old.task.status is Status.LEASED:
        ledger.set_successor(sid, old, held)
        return Reply.REPLACED, held
    return _put(ledger, sid, transitions.replacing(held, old), Reply.REPLACED)


def _put(ledger: Ledger, sid: str, held: Held, reply: Reply) -> tuple[Reply, Held]:
    ledger.schedule(sid, held)
    return reply, held


def reclaim(ledger: Ledger) -> tuple[int, int]:
    """Take back lapsed leases, at most BOUND; answers how many, and how many tasks died of it."""
    deaths = [_take_back(ledger, sid) for sid in list(islice(ledger.indexes.until(LEASED, ledger.now), BOUND))]
    return len(deaths), sum(deaths)


def prune(ledger: Ledger, retention_ms: int, dead_retention_ms: int | None) -> tuple[int, bool]:
    """Forget what ended long ago, at most BOUND of each kind; answers how many, and whether a bound was reached."""
    own_ms = ledger.limits.settings.retention_ms
    old = _until(ledger, DONE, ledger.now - (retention_ms if own_ms is None else own_ms))
    dead = []
    if dead_retention_ms is not None and ledger.indexes.size(DEAD):
        cut = ledger.now - dead_retention_ms
        dead = _until(ledger, DEAD, cut) if ledger.dead_swept_since() <= cut else []
    for sid in old + dead:
        ledger.forget(sid)
    return len(old) + len(dead), BOUND in (len(old), len(dead))


def _until(ledger: Ledger, index: bytes, at: int) -> list[str]:
    return list(islice(ledger.indexes.until(index, max(0, at)), BOUND))


def _take_back(ledger: Ledger, sid: str) -> bool:
    """Take back a lapsed lease; True where the task died of it."""
    held = ledger.held(sid)
    if held.successor:
        after = transitions.succeeded(held._replace(last=0), ledger.successor(sid))
    else:
        after = transitions.lapsed(held, ledger.now, ledger.when(sid))
    dead = after.task.status is Status.DEAD
    ledger.place(sid, after, ledger.now if dead else ledger.due_score(sid, after))
    if dead:
        tell_of(ledger, after.task)
    return dead


def settle(ledger: Ledger, settlement: Settlement) -> Settled:
    """End one lease."""
    sid = stored_id(settlement.tenant, settlement.id)
    held = ledger.get(sid)
    if not held:
        return Settled.STALE
    if not transitions.may_end(held, settlement):
        return transitions.settled_before(held, settlement)
    after, answer = transitions.settled(held, settlement, ledger.now)
    tell_of(ledger, after.task)
    if held.successor:
        after = transitions.succeeded(after, ledger.successor(sid))
    if after.task.status is Status.SCHEDULED:
        ledger.schedule(sid, after)
    else:
        ledger.place(sid, after, ledger.now)
    return answer


def look(ledger: Ledger, wanted: Wanted, place: Place, limit: int, tenant: str) -> Found:
    """The tasks after a place that are wanted, and how far was looked for them."""
    tasks: list[tuple[tuple[int, str], Task]] = []
    looked = size = 0
    for spot, task, length in _since(ledger, place.section.encode(), tenant, (place.at, place.id), wanted.group):
        looked, size = looked + 1, size + length
        if task.tenant == tenant and wanted.fits(task):
            tasks.append((spot, task))
        if len(tasks) == limit or looked == LOOK or size >= LOOK_BYTES:
            return Found(tasks, spot)
    return Found(tasks, None)


def _since(
    ledger: Ledger, index: bytes, tenant: str, place: tuple[int, str], group: str
) -> Iterator[tuple[tuple[int, str], Task, int]]:
    """What stands after a place, or of a group there: the place after each, in this tenant's words, task, bytes."""
    own = f"{tenant}/"
    since = ledger.indexes.since(index, place[0], own + place[1])
    for at, sid in ledger.members_since(index, place[0], own + place[1], tenant, group) if group else since:
        task = ledger.show(sid)
        if task is None:
            raise KeyError(sid)
        mine = (at, task.id) if sid.startswith(own) else (at, "") if sid < own else (at + 1, "")
        yield mine, task, ledger.size(sid)


def begin(ledger: Ledger, delivery: Lease, lease_ms: int, nonce: bytes) -> Begun:
    """Begin a task that was handed over."""
    sid, until = stored_id(delivery.tenant, delivery.id), ledger.now + lease_ms
    held = ledger.get(sid)
    if held and held.task.target and _is_leased(held, delivery.token):
        if transitions.is_expired(held.task, ledger.now):
            _bury(ledger, sid, transitions.overdue(held, ledger.now))
            return LOST
        successor = ledger.successor(sid) if held.successor else None
        held = transitions.begun(held._replace(successor=False), ledger.now, ledger.next_fence(), nonce)
        ledger.place(sid, held, until)
        if successor:
            ledger.set_successor(sid, held, successor)
    mine = held and held.task.token[FENCE_DIGITS:] == nonce.hex()
    if not held or not mine or not held.task.delivery or held.task.delivery != delivery.token:
        return LOST
    ledger.reindex(sid, held, until)
    return Begun(held.task.token, held.task.run, until)


def _bury(ledger: Ledger, sid: str, dead: Held) -> None:
    tell_of(ledger, dead.task)
    after = transitions.succeeded(dead, ledger.successor(sid)) if dead.successor else dead
    ledger.place(sid, after, ledger.now if after is dead else after.task.due_at)


def extend(ledger: Ledger, lease: Lease, lease_ms: int, at_least: bool) -> int:
    """Let a lease end `lease_ms` from now; 0 where it is lost."""
    sid = stored_id(lease.tenant, lease.id)
    held = ledger.get(sid)
    if not held or not _is_leased(held, lease.token):
        return 0
    standing = ledger.show(sid)
    until = max(ledger.now + lease_ms, standing.lease_expires_at if at_least and standing else 0)
    ledger.reindex(sid, held, until)
    return until


def save(ledger: Ledger, lease: Lease, state: str) -> bool:
    """Keep a checkpoint; False where the lease is lost."""
    sid = stored_id(lease.tenant, lease.id)
    held = ledger.get(sid)
    if not held or not _is_leased(held, lease.token):
        return False
    ledger.rewrite(sid, held._replace(task=held.task._replace(state_json=state)))
    return True


def move(ledger: Ledger, tenant: str, asked: Move) -> Reply:
    """Give one task a new due time."""
    sid = stored_id(tenant, asked.id)
    held = ledger.get(sid)
    if not held:
        return Reply.ABSENT
    status = held.task.status
    allowed = {Status.SCHEDULED: True, Status.LEASED: asked.force, Status.DONE: asked.revive}
    if not allowed.get(status, False):
        return REFUSALS[status]
    after = transitions.moved(_taken(ledger, sid, held), asked, ledger.now, ledger.next_fence)
    if after is None:
        return Reply.PAST_DEADLINE
    ledger.schedule(sid, after)
    return Reply.OK


def _taken(ledger: Ledger, sid: str, held: Held) -> Held:
    """The task as it is, and one that runs as it is once it is taken from its worker."""
    if held.task.status is not Status.LEASED:
        return held
    return transitions.taken(held, ledger.successor(sid) if held.successor else None, ledger.now)


def cancel(ledger: Ledger, sid: str, force: bool, by: str) -> Reply:
    """Cancel one task, delete a dead one."""
    held = ledger.get(sid)
    if not held:
        return Reply.ABSENT
    status = held.task.status
    if status is Status.DEAD:
        ledger.forget(sid)
        return Reply.OK
    if status is Status.SCHEDULED or (status is Status.LEASED and force):
        ledger.place(sid, transitions.cancelled(_taken(ledger, sid, held), ledger.now, by), ledger.now)
        return Reply.OK
    return REFUSALS[status]


def replay(ledger: Ledger, sid: str, delay_ms: int, deadline_ms: int, by: str) -> Reply:
    """Schedule one dead task again."""
    held = ledger.get(sid)
    if not held:
        return Reply.ABSENT
    if held.task.status is not Status.DEAD:
        return REFUSALS[held.task.status]
    ledger.schedule(sid, transitions.replayed(held, ledger.now, delay_ms, deadline_ms, by))
    return Reply.OK


def tell_of(ledger: Ledger, task: Task) -> None:
    """Add what tells of a task's end, where it has ended."""
    if task.status in ENDED:
        for new in follow_ups(task, ledger.now, deaths=ledger.deaths):
            ledger.follow(stored_id(new.tenant, new.id), transitions.fresh(new, ledger.now, ledger.next_fence()))


def _is_leased(held: Held, token: str) -> bool:
    return held.task.status is Status.LEASED and held.task.token == token
