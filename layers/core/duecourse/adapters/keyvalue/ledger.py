"""One shard's ledger within one batch: records, the index each stands in, groups, fences and the bell.

Keys are `<part> NUL <queue>/<number> NUL ...`, instants in them 8 bytes big-endian:

    task   stored id                            when (8 bytes: due, end of lease, or when it ended), packed record
    wait   stored id                            the packed record of a successor
    meta                                        META
    dead_swept                                  when a sweep first looked for old dead tasks (8 bytes)

and those of groups.py, handovers.py, indexes.py, limits.py and turns.py.
"""

from struct import Struct
from typing import NamedTuple

from duecourse.adapters.keyvalue.groups import Groups
from duecourse.adapters.keyvalue.handovers import Handovers, Waiting
from duecourse.adapters.keyvalue.held import Held, decode, encode
from duecourse.adapters.keyvalue.indexes import DEAD, DONE, DUE, LEASED, Indexes
from duecourse.adapters.keyvalue.limits import Limits
from duecourse.adapters.keyvalue.map import Batch
from duecourse.adapters.keyvalue.on_record import register
from duecourse.adapters.keyvalue.turns import Turns
from duecourse.adapters.record import stored_id
from duecourse.domain.follow_up import is_follow_up
from duecourse.domain.queues import HeldBack, Hold, QueueSettings
from duecourse.domain.task import Apart, NewTask, Shard, Status, Task
from duecourse.ports.store import PUT_ASIDE_MS, Delivery

DEADMAN_MS = 1_000
WOKEN_AT_ONCE = 64
LOOKED_AT = 500
"""Of those that wait for a target, in one claim."""
META = Struct(">QQ")
INDEX = {
    Status.SCHEDULED: DUE,
    Status.LEASED: LEASED,
    Status.DONE: DONE,
    Status.CANCELLED: DONE,
    Status.DEAD: DEAD,
}


class Meta(NamedTuple):
    """What a shard knows of itself: its fence counter, when its bell rings (0: it does not)."""

    fence: int = 0
    bell_at: int = 0


class Ledger:
    """A shard of `count` at one instant `now`; nothing is kept before the batch is committed."""

    def __init__(self, batch: Batch, shard: Shard, count: int, now: int, *, deaths: bool = False) -> None:
        self.now = now
        self.deaths = deaths
        self.fresh = False
        self._followed = False
        self._batch = batch
        self._shard, self._count = shard, count
        self._name = str(shard).encode()
        data = batch.get(self._key(b"meta"))
        self.meta = Meta(*META.unpack(data)) if data else Meta()
        self.indexes = Indexes(batch, self._name)
        self.turns = Turns(batch, self._name, now)
        self.limits = Limits(batch, shard, count, now)
        self.handovers = Handovers(batch, self._name)
        self._groups = Groups(batch, self._name)
        self._waited = self._is_full()

    def register(self) -> None:
        """Put the shard on record, as one of so many."""
        register(self._batch, self._shard, self._count)

    def next_fence(self) -> int:
        """Draw from the counter that never goes back."""
        self.set_meta(self.meta._replace(fence=self.meta.fence + 1))
        return self.meta.fence

    def set_meta(self, meta: Meta) -> None:
        """Keep what the shard knows of itself."""
        if meta != self.meta:
            self._batch.put(self._key(b"meta"), META.pack(*meta))
            self.meta = meta

    def configure(self, settings: QueueSettings) -> None:
        """Set the queue; the bell will know where what was held back no longer is."""
        before = self.limits.settings.tenant_max_running
        was_held = self._is_held()
        self.limits.set(settings)
        if self.limits.settings.tenant_max_running != before:
            self.fresh = self.turns.wake_all() or self.fresh
        self.fresh = self.fresh or (was_held and not self._is_held())

    def running(self) -> int:
        """How many tasks are leased."""
        return self.indexes.size(LEASED)

    def held_back(self) -> tuple[bool, bool]:
        """Whether nothing more can be claimed now, and whether due tasks wait until leases end."""
        return self._is_held(), self._is_full() or self.turns.has_parked()

    def hold(self, tenant: str, task: Task | None) -> HeldBack:
        """What holds a tenant's due tasks back, or this one of them."""
        settings, opens_at = self.limits.settings, self.limits.opens_at()
        if settings.paused:
            return HeldBack(Hold.PAUSE, now=self.now)
        if self._is_full():
            return HeldBack(Hold.MAX_RUNNING, now=self.now)
        if settings.tenant_max_running is not None and self.turns.running(tenant) >= settings.tenant_max_running:
            return HeldBack(Hold.TENANT_MAX_RUNNING, now=self.now)
        if opens_at > self.now:
            return HeldBack(Hold.RATE, opens_at, self.now)
        aside = task and self._stands_at(stored_id(task.tenant, task.id)) > task.due_at
        return HeldBack(Hold.TARGET if aside else None, now=self.now)

    def leave(self) -> None:
        """Who claims and leaves something due comes again: what a lapsed lease gave back is not rung for, but for
        follow-ups."""
        self._waited, self.fresh = False, self._followed

    def held(self, sid: str) -> Held:
        """The record at a stored id that an index names. Raises KeyError where there is none."""
        held = self.get(sid)
        if not held:
            raise KeyError(sid)
        return held

    def get(self, sid: str) -> Held | None:
        """The record at a stored id."""
        data = self._batch.get(self._key(b"task", sid))
        return decode(self._shard.queue, sid, data[8:]) if data else None

    def show(self, sid: str) -> Task | None:
        """The task at a stored id, with the end of its lease."""
        data = self._batch.get(self._key(b"task", sid))
        if not data:
            return None
        task = decode(self._shard.queue, sid, data[8:]).task
        return task._replace(lease_expires_at=int.from_bytes(data[:8])) if task.status is Status.LEASED else task

    def when(self, sid: str) -> int:
        """The instant at which a record stands in its index: due, the end of its lease, or when it ended."""
        return int.from_bytes((self._batch.get(self._key(b"task", sid)) or b"")[:8])

    def size(self, sid: str) -> int:
        """How many bytes the record has."""
        return len(self._batch.get(self._key(b"task", sid)) or b"") - 8

    def place(self, sid: str, held: Held, when: int) -> None:
        """Keep a record in the one index its status names, and nowhere else."""
        self._unplace(sid)
        self._batch.put(self._key(b"task", sid), when.to_bytes(8) + encode(held))
        self.indexes.put(INDEX[held.task.status], when, sid)
        if held.task.status is Status.SCHEDULED:
            self.turns.put(when, sid)
        elif held.task.status is Status.LEASED:
            self.turns.count_running(sid, 1)
            if held.task.target:
                self.handovers.count(held.task.target, 1)
        self._groups.join(sid, held.task)

    def put_aside(self, sid: str, held: Held, delivery: Delivery) -> None:
        """Let a due task wait until its target has room for it."""
        until, due_at = self.now + PUT_ASIDE_MS, held.task.due_at
        self.handovers.stop_waiting(Waiting(sid, due_at, self._stands_at(sid)), delivery.target)
        self.handovers.put_aside(Waiting(sid, due_at, until), delivery.target, delivery.most)
        self.place(sid, held, until)

    def wake(self, target: str, count: int) -> None:
        """Let the longest due of those that wait for a target be due again, as many as it has room for."""
        if count <= 0 or not self.handovers.is_waited_for(target):
            return
        left = min(count, WOKEN_AT_ONCE)
        for waiting in self.handovers.waiting(target, LOOKED_AT):
            if left == 0:
                break
            self.handovers.stop_waiting(waiting, target)
            held = self.get(waiting.sid)
            if held and held.task.status is Status.SCHEDULED and self._stands_at(waiting.sid) == waiting.until:
                self.place(waiting.sid, held, self.due_score(waiting.sid, held))
                left -= 1

    def schedule(self, sid: str, held: Held) -> None:
        """Place a scheduled record; the bell will know where that made it due."""
        self.place(sid, held, self.due_score(sid, held))
        self.fresh = self.fresh or held.task.due_at <= self.now

    def due_score(self, sid: str, held: Held) -> int:
        """Where a scheduled record stands among what is due: a follow-up that is due before all that is none."""
        due = held.task.due_at
        if due > self.now or not is_follow_up(sid):
            return due
        at, first = self.turns.first(sid) or (due, "")
        return at if at < due and is_follow_up(first) else max(min(at, due) - 1, 0)

    def follow(self, sid: str, held: Held) -> None:
        """Schedule what tells of another task's end, unless what tells of the same is yet to do so."""
        old = self.get(sid)
        if not old or old.task.status not in (Status.SCHEDULED, Status.LEASED):
            self.schedule(sid, held)
            self._followed = True

    def reindex(self, sid: str, held: Held, when: int) -> None:
        """Let a record stand at another instant of the index it is in."""
        key = self._key(b"task", sid)
        data = self._batch.get(key) or b""
        self.indexes.delete(INDEX[held.task.status], int.from_bytes(data[:8]), sid)
        self.indexes.put(INDEX[held.task.status], when, sid)
        self._batch.put(key, when.to_bytes(8) + data[8:])

    def rewrite(self, sid: str, held: Held) -> None:
        """Keep a changed record where it stands."""
        key = self._key(b"task", sid)
        self._batch.put(key, (self._batch.get(key) or b"")[:8] + encode(held))

    def dead_swept_since(self) -> int:
        """When a sweep first asked what may be forgotten of the dead: none is before it has been there that long."""
        key = self._key(b"dead_swept")
        since = self._batch.get(key)
        if since is None:
            since = self.now.to_bytes(8)
            self._batch.put(key, since)
        return int.from_bytes(since)

    def forget(self, sid: str) -> None:
        """Remove a record and all that points to it."""
        self._unplace(sid)
        self._batch.delete(self._key(b"task", sid))

    def successor(self, sid: str) -> Held:
        """The record that waits for the lease to end."""
        return decode(self._shard.queue, sid, self._batch.get(self._key(b"wait", sid)) or b"")

    def set_successor(self, sid: str, held: Held, successor: Held) -> None:
        """Let a record wait for the lease to end, instead of one that waits already."""
        if held.successor:
            self._groups.leave(sid, self.successor(sid).task)
        self._batch.put(self._key(b"wait", sid), encode(successor))
        self.rewrite(sid, held._replace(successor=True))
        self._groups.join(sid, held.task)
        self._groups.join(sid, successor.task)

    def members(self, tenant: str, group: str) -> list[Task]:
        """The tasks of a group, by id."""
        return [task for sid in self._groups.members(tenant, group) if (task := self.show(sid))]

    def members_since(self, index: bytes, at: int, sid: str, tenant: str, group: str) -> list[tuple[int, str]]:
        """The stored ids of a group that stand in an index after a place, each with its instant, in order."""
        shown = [(one, task) for one in self._groups.members(tenant, group) if (task := self.show(one))]
        spots = [(self.when(one), one) for one, task in shown if INDEX[task.status] == index]
        return sorted(spot for spot in spots if spot > (at, sid))

    def has_member_within(self, new: NewTask, apart: Apart) -> bool:
        """Whether this one's group has a task whose id is within those two."""
        return self._groups.has_within(new.tenant, new.group, *(stored_id(new.tenant, id) for id in apart))

    def hang(self) -> int:
        """Hang the bell at the earliest instant that could change something, and answer it.

        What is overdue was rung for: it gets a deadman, unless it was made due just now.
        """
        at, hung = self._earliest_change(), self.meta.bell_at
        self.fresh = self.fresh or (self._waited and not self._is_full())
        if 0 < at <= self.now:
            stays = self.now <= hung <= self.now + DEADMAN_MS
            at = self.now + 1 if self.fresh else hung if stays else self.now + DEADMAN_MS
        self.set_meta(self.meta._replace(bell_at=at))
        return at

    def close(self) -> None:
        """End the change: hang the bell, keep the indexes' numbers."""
        self.hang()
        if not self._batch.is_empty:
            self.indexes.save()
            self.turns.save()

    def _earliest_change(self) -> int:
        head = self.turns.head()
        head = self.now if self.handovers.wake else head
        head = 0 if self.limits.settings.paused or self._is_full() else head and max(head, self.limits.opens_at())
        return min((at for at in (self.indexes.first(LEASED), head) if at), default=0)

    def _is_full(self) -> bool:
        return self.limits.is_full(self.running())

    def _is_held(self) -> bool:
        return self.limits.settings.paused or self._is_full() or self.limits.opens_at() > self.now

    def _unplace(self, sid: str) -> None:
        data = self._batch.get(self._key(b"task", sid))
        if not data:
            return
        held = decode(self._shard.queue, sid, data[8:])
        if held.successor:
            self._groups.leave(sid, self.successor(sid).task)
            self._batch.delete(self._key(b"wait", sid))
        self.indexes.delete(INDEX[held.task.status], int.from_bytes(data[:8]), sid)
        if held.task.status is Status.SCHEDULED:
            self.turns.delete(int.from_bytes(data[:8]), sid)
        elif held.task.status is Status.LEASED:
            self._end_lease(sid)
            if held.task.target:
                self.fresh = self.handovers.count(held.task.target, -1) or self.fresh
        self._groups.leave(sid, held.task)

    def _end_lease(self, sid: str) -> None:
        running, most = self.turns.count_running(sid, -1), self.limits.settings.tenant_max_running
        if most is not None and running < most:
            self.fresh = self.turns.wake(sid.partition("/")[0]) or self.fresh

    def _stands_at(self, sid: str) -> int:
        return int.from_bytes((self._batch.get(self._key(b"task", sid)) or b"")[:8])

    def _key(self, part: bytes, sid: str = "") -> bytes:
        return part + b"\0" + self._name + b"\0" + sid.encode()
