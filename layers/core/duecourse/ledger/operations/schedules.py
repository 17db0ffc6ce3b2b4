"""Operations on schedules."""

import itertools
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from heapq import nsmallest
from typing import Any

from duecourse.base.batches import batched, cut, in_steps
from duecourse.base.ids import MARK
from duecourse.errors import BeyondQuota, QuotaExceeded, StoreMisused, StoreUnavailable, TaskDamaged
from duecourse.ledger import script_codec
from duecourse.ledger.many_tasks import PAGE_BYTES, TaskFilter, record_size
from duecourse.ledger.operation_types import BEYOND, MAX_FIRE, QUOTAS, Fired, Put, SchedulePage, Written, check_count
from duecourse.ledger.operations.base import LedgerBase, RawRecord, ScriptRunner
from duecourse.ledger.operations.tasks import walk_arguments
from duecourse.ledger.record import pack_progress, pack_schedule, stored_schedule, unpack_schedule, unpack_sound
from duecourse.ledger.schedule import (
    TENANT,
    Firing,
    Progress,
    Purge,
    Purged,
    Schedule,
    StoredSchedule,
)
from duecourse.ledger.script_codec import REPLIES
from duecourse.ledger.task import DEFAULT_TENANT, Shard

log = logging.getLogger("duecourse.ledger")

PUT = {1: Put.CREATED, 2: Put.CHANGED, 3: Put.KEPT, -1: Put.ABSENT, -2: Put.CONFLICT}
LOOKS = 4
"""Maximum number of steps of a search for names like a wrong one."""
PAGE, NAMES = 500, 5_000
"""Schedules that are read at a time: their records, and their ids alone."""
LOOKED_AT = 10_000
"""Most schedules that one purge looks at: one that chooses few of them by kind is asked for again."""
AT_ONCE = 20
"""Number of schedules of a page that are read at a time: each may have a payload of 256 KiB."""
DAMAGED = -6
"""Rejection of schedule.lua: the record cannot be read."""
MAX_ARGUMENTS = 3_500
"""Most arguments of one script, fewer than the 3,999 that ElastiCache Serverless takes."""
OWN, TASK = 5, 7
"""Arguments of fire.lua for each schedule, and for each of its occurrences."""


class ScheduleOperations(LedgerBase):
    """Operations on schedules, each in the shard of its occurrences: their group is its id.

    A schedule is a record of a tenant that no user can have. It adds tasks, and is never leased.
    """

    def now_by_answers(self, queue: str, id: str) -> int:
        """The store's time (epoch ms) where a schedule is, by an answer of the last minutes; else it is asked for.

        It is wrong where the store's clock was set since that answer: by more than a minute, `put_schedule` then writes
        nothing.
        """
        keys = self._runner.keys(self._schedules_shard(queue, id))
        return self._scripts.travel.now() if self._scripts.travel else self._scripts.now(keys.tasks)

    def put_schedule(
        self, schedule: Schedule, progress: Progress, *, seen: StoredSchedule | None = None, at: int = 0
    ) -> Written:
        """Write a schedule, in one step.

        It takes the place of `seen`, the schedule as its caller read it. CONFLICT where that was changed, was given
        another next time, or has fired since; ABSENT where it is not there. A change keeps what became of occurrences
        since. Without `seen` it is created; KEPT, and unchanged, where it is there.

        `progress` was computed at `at` (epoch ms, 0 for any). CONFLICT where the store's clock is far behind that: it
        was put back since. So for a new schedule where it is far ahead, too.

        Raises TaskDamaged where its record cannot be read: `drop_schedule` deletes that. Raises QuotaExceeded and
        BeyondQuota as an add of one task does; its bytes count among its tenant's until it is dropped.
        """
        shard, tenant = self._schedules_shard(schedule.queue, schedule.id), schedule.tenant
        rest = pack_schedule(schedule, progress, os.urandom(8))
        terms: list[script_codec.Argument] = [
            0,
            stored_schedule(tenant, schedule.id),
            tenant,
            seen.generation if seen else "",
            progress.next_at,
            rest,
            at,
        ]
        self._registry.admit(shard, tenant)
        # Next: lua/schedule.lua.
        now, _, code, wait_ms = self._runner.run_registered("schedule", shard, [TENANT, tenant], terms)
        if code in PUT:
            return Written(PUT[code], now)
        raise _rejection(code, wait_ms, schedule)

    def schedule(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> StoredSchedule | None:
        """One schedule. Raises TaskDamaged where its record cannot be read."""
        sid = stored_schedule(tenant, id)
        found = self._scheduled(self._schedules_shard(queue, id), [sid])
        return _stored(queue, sid, found[sid]) if sid in found else None

    def schedules(self, queue: str, after: str, limit: int, tenant: str = DEFAULT_TENANT) -> SchedulePage:
        """At most `limit` schedules of a tenant in a queue, by id, those after an id; no backfills.

        A page reads its own ids alone where a quota counts schedules, else all of the tenant.
        """
        names = self._ids(tenant, self._names_behind(queue, after, limit + 1, tenant))
        chosen = nsmallest(limit + 1, (id for id in names if id > after))
        found, room = list[StoredSchedule | None](), PAGE_BYTES
        for stored in self._in_order({id: names[id] for id in chosen[:limit]}, tenant):
            found.append(stored)
            room -= record_size(stored.schedule.payload) if stored else 0
            if room <= 0:
                break
        after = chosen[len(found) - 1] if len(found) < len(chosen) else ""
        return SchedulePage([stored for stored in found if stored], after)

    def schedule_ids(self, queue: str, tenant: str = DEFAULT_TENANT) -> list[str]:
        """Ids of schedules of a tenant in a queue, 2,000 at most, in no order; no backfills."""
        shards = self._sharding.every(queue)[:LOOKS]
        return list(self._ids(tenant, {shard: self._names(shard, tenant, LOOKS // len(shards)) for shard in shards}))

    def _in_order(self, shards: Mapping[str, Shard], tenant: str) -> Iterator[StoredSchedule | None]:
        """Schedules by their ids and shards, read as they are asked for; None for one that cannot be read."""
        prefix = stored_schedule(tenant, "")
        for ids in batched([*shards], AT_ONCE):
            found: dict[str, StoredSchedule | None] = {}
            for shard in dict.fromkeys(shards[id] for id in ids):
                own = [prefix + id for id in ids if shards[id] == shard]
                found |= _readable(shard.queue, self._scheduled(shard, own))
            yield from (found.get(prefix + id) for id in ids)

    def _shards_by_id(self, queue: str, tenant: str) -> dict[str, Shard]:
        return self._ids(tenant, {shard: self._names(shard, tenant) for shard in self._sharding.every(queue)})

    def _ids(self, tenant: str, names: Mapping[Shard, Sequence[str]]) -> dict[str, Shard]:
        """Shards by the ids of their schedules, without backfills."""
        prefix = stored_schedule(tenant, "")
        return {
            id: shard for shard, own in names.items() for name in own if MARK not in (id := name.removeprefix(prefix))
        }

    def drop_schedule(
        self,
        queue: str,
        id: str,
        tenant: str = DEFAULT_TENANT,
        *,
        generation: int | None = None,
        created_at: int | None = None,
    ) -> bool:
        """Delete a schedule, and cancel the occurrence that waits for another.

        False where it is not there, or is of another `generation`, or was added later than `created_at`. Its
        other occurrences stay. Its backfills add nothing any more, even if it is added again: the next step of each
        deletes it.
        """
        return bool(self._drop(self._schedules_shard(queue, id), tenant, [(id, generation)], created_at))

    def purge_schedules(self, queue: str, purge: Purge, tenant: str = DEFAULT_TENANT) -> Purged:
        """Delete schedules of a tenant by id, as `drop_schedule` does; a dry run only counts them.

        One that is changed after its kind was seen stays. All ids of the tenant are read, for the index is in the order
        of time.
        """
        shards = self._shards_by_id(queue, tenant)
        ids = sorted(id for id in shards if id > purge.after and id.startswith(purge.prefix))
        ids = [id for id in ids if id <= purge.until] if purge.until else ids
        count, looked = 0, 0
        for some in batched(ids[:LOOKED_AT], AT_ONCE):
            chosen = self._of_kind({id: shards[id] for id in some}, tenant, purge.kind)[: purge.limit - count]
            if not purge.dry_run:
                for shard in dict.fromkeys(shards[id] for id, _ in chosen):
                    own = [one for one in chosen if shards[one[0]] == shard]
                    count += self._drop(shard, tenant, own, purge.before)
            else:
                count += len(chosen)
            if count >= purge.limit:
                looked += some.index(chosen[-1][0]) + 1
                break
            looked += len(some)
        return Purged(count, ids[looked - 1] if 0 < looked < len(ids) else "")

    def _of_kind(self, shards: Mapping[str, Shard], tenant: str, kind: str) -> list[tuple[str, int | None]]:
        """Ids of the schedules of a kind, each with the generation that was seen; of all for none, read or not."""
        if not kind:
            return [(id, None) for id in shards]
        found = zip(shards, self._in_order(shards, tenant), strict=True)
        return [(id, stored.generation) for id, stored in found if stored and stored.schedule.kind == kind]

    def _drop(
        self, shard: Shard, tenant: str, ones: Sequence[tuple[str, int | None]], created_at: int | None = None
    ) -> int:
        """Delete schedules of a shard by id, where each has the generation that is given; answers how many.

        Each that was added later than `created_at` stays.
        """
        latest = "" if created_at is None else created_at
        every = [(stored_schedule(tenant, id), "" if at is None else at, latest) for id, at in ones]

        def step(some: Sequence[tuple[str, int | str, int | str]]) -> list[int]:
            terms = (tenant, *(term for one in some for term in one))
            return list(self._runner.run("unschedule", shard, [TENANT, tenant], terms)[2])

        return sum(in_steps(every, step))

    def coming_schedules(self) -> Iterator[StoredSchedule]:
        """Schedules of all shards that are not due yet, paused ones too, read as they are asked for.

        One that fires or is changed meanwhile may come twice, or not at all. One that cannot be read is only logged.
        Where there are none, it costs a round trip a node.
        """
        shards = self.shards()
        counts = (
            self._scripts.read(*(("ZCARD", self._runner.keys(one).due(TENANT)) for one in shards)) if shards else []
        )
        for shard, count in zip(shards, counts, strict=True):
            if count:
                yield from self._coming(shard, self.now())

    def _coming(self, shard: Shard, after: int) -> Iterator[StoredSchedule]:
        """Schedules of a shard that are due later than an instant."""
        due, names, seen = self._runner.keys(shard).due(TENANT), dict[str, None](), -1
        # All names first: whoever asks for the records may move their schedules, and so those behind them, meanwhile.
        while len(names) > seen:
            seen = len(names)
            page = self._scripts.command("ZRANGEBYSCORE", due, after + 1, "+inf", "LIMIT", seen, NAMES)
            names |= dict.fromkeys(sid.decode() for sid in page)
        for sids in batched([*names], PAGE):
            yield from filter(None, _readable(shard.queue, self._scheduled(shard, sids)).values())

    def fire(self, shard: Shard, firings: Sequence[Firing]) -> list[Fired]:
        """Add the occurrences of schedules and move these on, each in one step or not at all, at most MAX_FIRE.

        Each step draws a new generation. So does each change: STALE where the generation is another than was read. The
        same call that is sent again after a lost reply is FIRED again, and does nothing twice.

        The last step of a backfill deletes it; sent again it is STALE. One that queues is STALE, and adds nothing,
        while an occurrence of its series has not ended. It is due again after a tenth of the age of the newest of them:
        at least a second, at most a minute.

        `overlap` is decided here, for each task in turn. Its occurrences are the newest 32 of its series that were
        added here and have not ended. An occurrence that is left out is `skipped` in the schedule's progress, and
        counted in `skipped` besides `fired`. What a backfill leaves out counts in its series'. One that is queued is
        due at NEVER until the others have ended. It takes the place of one that waits already, which is cancelled and
        counts as skipped. With `replace` those before are cancelled, by force. A task over a quota of its tenant is not
        added: it counts as skipped. One whose id exists, in whatever state, is kept as it is.

        A firing `by_hand` is alone in its call, and no `overlap` holds for it. Raises QuotaExceeded and BeyondQuota as
        an add does where its task is over a quota; then nothing has changed.

        The step that ends an occurrence notes in its schedule what became of it, and lets the one that waits be due.
        The step that schedules it again (a replay, a move, an add in place of a dead one) notes that it is live.
        """
        check_count(len(firings), MAX_FIRE)
        self._registry.check(shard.queue)
        self._registry.keep(shard)
        most = max((OWN + TASK * len(firing.tasks) for firing in firings), default=OWN)
        batches = cut(firings, _weight, most=max(1, MAX_ARGUMENTS // most), max_bytes=script_codec.MAX_PIECE_BYTES)
        return [fired for batch in batches for fired in self._fire_all(shard, batch)]

    def _fire_all(self, shard: Shard, firings: Sequence[Firing]) -> list[Fired]:
        tenants = [TENANT, *dict.fromkeys(firing.stored.schedule.tenant for firing in firings)]
        packed = [_packed(firing, os.urandom(8)) for firing in firings]
        return in_steps(packed, partial(_fire, self._runner, shard, tenants, max(firing.at for firing in firings)))

    def _schedules_shard(self, queue: str, id: str) -> Shard:
        """The shard of a schedule's occurrences; a backfill's are those of the schedule before the mark in its id."""
        return self._sharding.of(queue, "", id.partition(MARK)[0])

    def _names(self, shard: Shard, tenant: str, most: int | None = None) -> list[str]:
        """Stored ids of a tenant's schedules in a shard, a bounded step at a time, and `most` steps at most."""
        found: dict[str, None] = {}
        place: Sequence[Any] = (0, "")
        for _ in itertools.count() if most is None else range(most):
            if not place:
                break
            terms = (*walk_arguments("due", place[0], place[1], TaskFilter()), tenant)
            _, place, names = self._runner.run("schedules", shard, [TENANT], terms)
            found |= dict.fromkeys(name.decode() for name in names)
        return [*found]

    def _names_behind(self, queue: str, after: str, most: int, tenant: str) -> dict[Shard, list[str]]:
        """Stored ids of a tenant's schedules by shard: the first `most` behind an id if they are indexed, else all."""
        shards, found = self._sharding.every(queue), dict[Shard, list[str]]()
        metas = (self._runner.keys(shard).meta for shard in shards)
        # The state first: an index that was whole then is whole when it is read.
        states = self._scripts.read(*(("HMGET", meta, "shards", "quotas", "rewrite") for meta in metas))
        for shard, (count, quotas, rewrite) in zip(shards, states, strict=True):
            self._registry.compare(queue, count)
            # While a quota counts them, and the pass is over that begins with it (lua/modules/record.lua).
            is_indexed = b"s" in (quotas or b"") and rewrite is None
            found[shard] = self._indexed(shard, after, most, tenant) if is_indexed else self._names(shard, tenant)
        return found

    def _indexed(self, shard: Shard, after: str, most: int, tenant: str) -> list[str]:
        """Stored ids of the first schedules of a tenant behind an id, `most` or more if there are as many."""
        groups, prefix, found = self._runner.keys(shard).groups, stored_schedule(tenant, ""), list[str]()
        while True:
            bounds = (f"({TENANT}/{tenant}\0{prefix}{after}", f"({TENANT}/{tenant}\1")
            names = self._scripts.command("ZRANGEBYLEX", groups, *bounds, "LIMIT", 0, most)
            ids = [name.decode().partition(f"\0{prefix}")[2] for name in names]
            found += [prefix + id for id in ids if MARK not in id]
            if len(ids) < most or len(found) >= most:
                return found
            after = ids[-1]

    def _scheduled(self, shard: Shard, sids: Sequence[str]) -> dict[str, RawRecord]:
        """Records by stored id, of those that are there, with their payloads."""
        if not sids:
            return {}
        keys = self._runner.keys(shard)
        records, count = self._scripts.read(("HMGET", keys.tasks, *sids), ("HGET", keys.meta, "shards"))
        self._registry.compare(shard.queue, count)
        there = {sid: RawRecord(data, None) for sid, data in zip(sids, records, strict=True) if data is not None}
        return self._whole(shard, there)


def read_due(runner: ScriptRunner, shard: Shard, flat: Sequence[bytes]) -> list[StoredSchedule]:
    """Schedules that a claim found due; one that cannot be read is only logged, and put off for a minute."""
    rows = zip(map(bytes.decode, flat[::3]), flat[1::3], flat[2::3], strict=True)
    found = _readable(shard.queue, {sid: RawRecord(data, None, payload) for sid, data, payload in rows})
    broken = [sid for sid, stored in found.items() if stored is None]
    if broken:
        with suppress(StoreUnavailable, StoreMisused):  # the next claim finds them: this one has leased tasks
            _fire(runner, shard, [TENANT], 0, [(sid, sid, "", "", "") for sid in broken])
    return [stored for stored in found.values() if stored]


def _fire(
    runner: ScriptRunner,
    shard: Shard,
    tenants: Sequence[str],
    at: int,
    packed: Sequence[Sequence[script_codec.Argument]],
) -> list[Fired]:
    every = (at, 0, "", 0, *(part for one in packed for part in one))
    _, _, codes, wait_ms = runner.run("fire", shard, tenants, every)
    if codes and codes[0] < 0:
        raise _over_quota(codes[0], wait_ms)
    return [Fired.FIRED if code else Fired.STALE for code in codes]


def _readable(queue: str, records: Mapping[str, RawRecord]) -> dict[str, StoredSchedule | None]:
    """Schedules by stored id; None, with a line of log, for one that cannot be read."""
    found: dict[str, StoredSchedule | None] = {}
    for sid, one in records.items():
        try:
            found[sid] = _stored(queue, sid, one)
        except TaskDamaged:
            log.exception("schedule %s in queue %s waits because its record cannot be read", sid, queue)
            found[sid] = None
    return found


def _stored(queue: str, sid: str, found: RawRecord) -> StoredSchedule:
    """The schedule in a record. Raises TaskDamaged."""
    return unpack_schedule(unpack_sound(queue, sid, found.data, 0, found.payload))


def _rejection(code: int, wait_ms: int, schedule: Schedule) -> Exception:
    if code == DAMAGED:
        return TaskDamaged(f"the record of schedule {schedule.id} cannot be read: delete the schedule")
    return _over_quota(code, wait_ms)


def _over_quota(code: int, wait_ms: int) -> BeyondQuota | QuotaExceeded:
    reply = REPLIES[code]
    return BeyondQuota(BEYOND[reply], "payload") if reply in BEYOND else QuotaExceeded(QUOTAS[reply], wait_ms)


def _weight(firing: Firing) -> int:
    return sum(map(script_codec.task_size, firing.tasks))


def _packed(firing: Firing, call: bytes) -> tuple[script_codec.Argument, ...]:
    """A firing as fire.lua takes it; `call` is 8 bytes of its own, the same if it is sent again."""
    schedule, before = firing.stored.schedule, firing.stored.progress
    terms = (
        firing.stored.generation,
        before.next_at,
        before.version,
        firing.progress.next_at,
        "h" if firing.by_hand else schedule.overlap[0],
        len(firing.tasks),
    )
    # By its occurrences, the request that asked for a backfill knows that it was made.
    mark = bytes.fromhex(schedule.mark) if schedule.of else b""
    pack = partial(script_codec.pack_new_task, call=mark or call, is_keyed=bool(mark))
    tasks = [pack(task, place=place) for place, task in enumerate(firing.tasks)]
    return (
        stored_schedule(schedule.tenant, schedule.id),
        stored_schedule(schedule.tenant, schedule.series),
        " ".join(map(str, terms)),
        pack_progress(firing.progress),
        call,
        *(part for one in tasks for part in one.arguments),
    )
