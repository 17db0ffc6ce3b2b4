"""Verbs on schedules (ports.schedules)."""

import itertools
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from heapq import nsmallest
from typing import Any

from duecourse.adapters.redis import arguments
from duecourse.adapters.redis.answers import REPLIES
from duecourse.adapters.redis.ledger import Found, RedisLedger
from duecourse.adapters.redis.pages import walk_terms
from duecourse.adapters.redis.record import UNREADABLE, unpack
from duecourse.adapters.redis.schedule_record import (
    pack_progress,
    pack_schedule,
    stored_schedule,
    unpack_schedule,
)
from duecourse.adapters.redis.verbs import in_steps
from duecourse.domain.batches import cut, pieces
from duecourse.domain.pages import PAGE_BYTES, Wanted, size_of
from duecourse.domain.schedule import TENANT, Firing, Kept, Progress, Purge, Purged, Schedule
from duecourse.domain.task import DEFAULT_TENANT, MARK, Shard
from duecourse.errors import BeyondQuota, LedgerTooOld, QuotaExceeded, StoreMisused, StoreUnavailable, TaskDamaged
from duecourse.ports.ledger import check_count
from duecourse.ports.schedules import MAX_FIRE, Fired, Put, SchedulePage, Written
from duecourse.ports.tasks import BEYOND, QUOTAS

log = logging.getLogger("duecourse.store")

PUT = {1: Put.CREATED, 2: Put.CHANGED, 3: Put.KEPT, -1: Put.ABSENT, -2: Put.CONFLICT}
LOOKS = 4
"""Maximum number of steps of a search for names like a wrong one."""
PAGE, NAMES = 500, 5_000
"""Schedules that are read at a time: their records, and their ids alone."""
LOOKED_AT = 10_000
"""Most schedules that one purge looks at: one that chooses few of them by kind is asked for again."""
AT_ONCE = 20
"""Number of schedules of a page that are read at a time: each may have a payload of 256 KiB."""
TOO_OLD, DAMAGED = -5, -6
"""Rejections of schedule.lua that are errors."""
MAX_ARGUMENTS = 3_500
"""Most arguments of one script, fewer than the 3,999 that ElastiCache Serverless takes."""
OWN, TASK = 5, 7
"""Arguments of fire.lua for each schedule, and for each of its occurrences."""


class RedisSchedules(RedisLedger):
    """Schedules: records of a tenant that no user can have, each in the shard of its occurrences."""

    def put_schedule(self, schedule: Schedule, progress: Progress, *, if_version: int | None = None) -> Written:
        """See ScheduleStore."""
        shard, tenant = self._schedules_shard(schedule.queue, schedule.id), schedule.tenant
        rest = pack_schedule(schedule, progress, os.urandom(8))
        version = "" if if_version is None else if_version
        terms: list[arguments.Argument] = [
            0,
            stored_schedule(tenant, schedule.id),
            tenant,
            version,
            progress.next_at,
            rest,
        ]
        self._record.admit(shard, tenant)
        now, _, code, wait_ms = self._adds.run_registered("schedule", shard, [TENANT, tenant], terms)
        if code in PUT:
            return Written(PUT[code], now)
        raise _rejection(code, wait_ms, schedule)

    def schedule(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Kept | None:
        """See ScheduleStore. Raises TaskDamaged."""
        sid = stored_schedule(tenant, id)
        found = self._scheduled(self._schedules_shard(queue, id), [sid])
        return _kept(queue, sid, found[sid]) if sid in found else None

    def schedules(self, queue: str, after: str, limit: int, tenant: str = DEFAULT_TENANT) -> SchedulePage:
        """See ScheduleStore; all ids of the tenant are read, for the index is in the order of time."""
        names = self._shards_by_id(queue, tenant)
        chosen = nsmallest(limit + 1, (id for id in names if id > after))
        found, room = list[Kept | None](), PAGE_BYTES
        for kept in self._in_order({id: names[id] for id in chosen[:limit]}, tenant):
            found.append(kept)
            room -= size_of(kept.schedule.payload) if kept else 0
            if room <= 0:
                break
        after = chosen[len(found) - 1] if len(found) < len(chosen) else ""
        return SchedulePage([kept for kept in found if kept], after)

    def schedule_ids(self, queue: str, tenant: str = DEFAULT_TENANT) -> list[str]:
        """See ScheduleStore."""
        shards = self._sharding.every(queue)[:LOOKS]
        return list(self._ids(tenant, {shard: self._names(shard, tenant, LOOKS // len(shards)) for shard in shards}))

    def _in_order(self, shards: Mapping[str, Shard], tenant: str) -> Iterator[Kept | None]:
        """Schedules by their ids and shards, read as they are asked for; None for one that cannot be read."""
        prefix = stored_schedule(tenant, "")
        for ids in pieces([*shards], AT_ONCE):
            found: dict[str, Kept | None] = {}
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
        """See ScheduleStore."""
        return bool(self._drop(self._schedules_shard(queue, id), tenant, [(id, generation)], created_at))

    def purge_schedules(self, queue: str, asked: Purge, tenant: str = DEFAULT_TENANT) -> Purged:
        """See BulkStore; all ids of the tenant are read, for the index is in the order of time."""
        shards = self._shards_by_id(queue, tenant)
        ids = sorted(id for id in shards if id > asked.after and id.startswith(asked.prefix))
        ids = [id for id in ids if id <= asked.until] if asked.until else ids
        count, looked = 0, 0
        for some in pieces(ids[:LOOKED_AT], AT_ONCE):
            chosen = self._of_kind({id: shards[id] for id in some}, tenant, asked.kind)[: asked.limit - count]
            if not asked.dry_run:
                for shard in dict.fromkeys(shards[id] for id, _ in chosen):
                    own = [one for one in chosen if shards[one[0]] == shard]
                    count += self._drop(shard, tenant, own, asked.before)
            else:
                count += len(chosen)
            if count >= asked.limit:
                looked += some.index(chosen[-1][0]) + 1
                break
            looked += len(some)
        return Purged(count, ids[looked - 1] if 0 < looked < len(ids) else "")

    def _of_kind(self, shards: Mapping[str, Shard], tenant: str, kind: str) -> list[tuple[str, int | None]]:
        """Ids of the schedules of a kind, each with the generation that was seen; of all for none, read or not."""
        if not kind:
            return [(id, None) for id in shards]
        found = zip(shards, self._in_order(shards, tenant), strict=True)
        return [(id, kept.generation) for id, kept in found if kept and kept.schedule.kind == kind]

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
            return list(self._verbs.run("unschedule", shard, [TENANT, tenant], terms)[2])

        return sum(in_steps(every, step))

    def coming_schedules(self) -> Iterator[Kept]:
        """See ScheduleStore."""
        shards = self.shards()
        counts = self._scripts.read(*(("ZCARD", self._verbs.keys(one).due(TENANT)) for one in shards)) if shards else []
        for shard, count in zip(shards, counts, strict=True):
            if count:
                yield from self._coming(shard, self.now())

    def _coming(self, shard: Shard, after: int) -> Iterator[Kept]:
        """Schedules of a shard that are due later than an instant."""
        due, names, seen = self._verbs.keys(shard).due(TENANT), dict[str, None](), -1
        # All names first: whoever asks for the records may move their schedules, and so those behind them, meanwhile.
        while len(names) > seen:
            seen = len(names)
            page = self._scripts.command("ZRANGEBYSCORE", due, after + 1, "+inf", "LIMIT", seen, NAMES)
            names |= dict.fromkeys(sid.decode() for sid in page)
        for sids in pieces([*names], PAGE):
            yield from filter(None, _readable(shard.queue, self._scheduled(shard, sids)).values())

    def fire(self, shard: Shard, firings: Sequence[Firing]) -> list[Fired]:
        """See ScheduleStore."""
        check_count(len(firings), MAX_FIRE)
        self._record.check(shard.queue)
        self._record.keep(shard)
        most = max((OWN + TASK * len(firing.tasks) for firing in firings), default=OWN)
        pieces = cut(firings, _weight, most=max(1, MAX_ARGUMENTS // most), max_bytes=arguments.MAX_PIECE_BYTES)
        return [fired for piece in pieces for fired in self._fire_all(shard, piece)]

    def _fire_all(self, shard: Shard, firings: Sequence[Firing]) -> list[Fired]:
        tenants = [TENANT, *dict.fromkeys(firing.kept.schedule.tenant for firing in firings)]
        packed = [_packed(firing, os.urandom(8)) for firing in firings]
        return in_steps(packed, partial(self._fire, shard, tenants, max(firing.at for firing in firings)))

    def _fire(
        self, shard: Shard, tenants: Sequence[str], at: int, packed: Sequence[Sequence[arguments.Argument]]
    ) -> list[Fired]:
        every = (at, 0, *arguments.alone("", None), *(part for one in packed for part in one))
        _, _, codes, wait_ms = self._verbs.run("fire", shard, tenants, every)
        if codes and codes[0] < 0:
            raise _over_quota(codes[0], wait_ms)
        return [Fired.FIRED if code else Fired.STALE for code in codes]

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
            terms = (*walk_terms("due", place[0], place[1], Wanted()), tenant)
            _, place, names = self._verbs.run("schedules", shard, [TENANT], terms)
            found |= dict.fromkeys(name.decode() for name in names)
        return [*found]

    def _scheduled(self, shard: Shard, sids: Sequence[str]) -> dict[str, Found]:
        """Records by stored id, of those that are there, with their payloads."""
        if not sids:
            return {}
        keys = self._verbs.keys(shard)
        records, count = self._scripts.read(("HMGET", keys.tasks, *sids), ("HGET", keys.meta, "shards"))
        self._record.compare(shard.queue, count)
        there = {sid: Found(data, None) for sid, data in zip(sids, records, strict=True) if data is not None}
        return self._whole(shard, there)

    def _due(self, shard: Shard, flat: Sequence[bytes]) -> list[Kept]:
        """Schedules that a claim found due; one that cannot be read is only logged, and put off for a minute."""
        rows = zip(map(bytes.decode, flat[::3]), flat[1::3], flat[2::3], strict=True)
        found = _readable(shard.queue, {sid: Found(data, None, payload) for sid, data, payload in rows})
        broken = [sid for sid, kept in found.items() if kept is None]
        if broken:
            with suppress(StoreUnavailable, StoreMisused):  # the next claim finds them: this one has leased tasks
                self._fire(shard, [TENANT], 0, [(sid, sid, "", "", "") for sid in broken])
        return [kept for kept in found.values() if kept]


def _readable(queue: str, records: Mapping[str, Found]) -> dict[str, Kept | None]:
    """Schedules by stored id; None, with a line of log, for one that cannot be read."""
    found: dict[str, Kept | None] = {}
    for sid, one in records.items():
        try:
            found[sid] = _kept(queue, sid, one)
        except TaskDamaged:
            log.exception("schedule %s in queue %s waits because its record cannot be read", sid, queue)
            found[sid] = None
    return found


def _kept(queue: str, sid: str, found: Found) -> Kept:
    """The schedule in a record. Raises TaskDamaged."""
    try:
        task = unpack(queue, sid, found.data, 0, found.payload)
    except UNREADABLE as error:
        raise TaskDamaged(f"the record of {sid} cannot be read: {error}") from error
    return unpack_schedule(task)


def _rejection(code: int, wait_ms: int, schedule: Schedule) -> Exception:
    if code == TOO_OLD:
        return LedgerTooOld()
    if code == DAMAGED:
        return TaskDamaged(f"the record of schedule {schedule.id} cannot be read: delete the schedule")
    return _over_quota(code, wait_ms)


def _over_quota(code: int, wait_ms: int) -> BeyondQuota | QuotaExceeded:
    reply = REPLIES[code]
    return BeyondQuota(BEYOND[reply], "payload") if reply in BEYOND else QuotaExceeded(QUOTAS[reply], wait_ms)


def _weight(firing: Firing) -> int:
    return sum(map(arguments.weight, firing.tasks))


def _packed(firing: Firing, call: bytes) -> tuple[arguments.Argument, ...]:
    """A firing as fire.lua takes it; `call` is 8 bytes of its own, the same if it is sent again."""
    schedule, before = firing.kept.schedule, firing.kept.progress
    terms = (
        firing.kept.generation,
        before.next_at,
        before.version,
        firing.progress.next_at,
        "h" if firing.by_hand else schedule.overlap[0],
        len(firing.tasks),
    )
    tasks = (
        part
        for place, task in enumerate(firing.tasks)
        for part in arguments.new_task(task, call[:6] + place.to_bytes(2))
    )
    return (
        stored_schedule(schedule.tenant, schedule.id),
        stored_schedule(schedule.tenant, schedule.series),
        " ".join(map(str, terms)),
        pack_progress(firing.progress),
        call,
        *tasks,
    )
