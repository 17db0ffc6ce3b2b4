"""Checks of one shard: its settings, its version, its leases, its bell, and its indexes beside its records."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import NamedTuple

from duecourse.base.batches import batched
from duecourse.base.times import counted, span
from duecourse.ledger import keys as settings
from duecourse.ledger.keys import Keys, bell_time, keys_of
from duecourse.ledger.layout import VERSION, way_out
from duecourse.ledger.maintenance import SUCCESSOR, Scan, ScannedTask
from duecourse.ledger.queue_history import FIELDS as HISTORY
from duecourse.ledger.queue_history import unpack_history
from duecourse.ledger.record import UNREADABLE, unpack
from duecourse.ledger.schedule import NEVER
from duecourse.ledger.schedule import TENANT as SCHEDULES
from duecourse.ledger.script_calls import Scripts
from duecourse.ledger.task import Shard, Status, is_notification

from .finding import Finding, Level

AT_A_TIME = 500
LOOKS = 3
"""Looks at a task that an index seems to lack: it may change between the look at it and that at its entry."""


class Entry(NamedTuple):
    """An entry of an index: the sorted set, its member, and the stored id of the task that it is of."""

    key: str
    member: str
    sid: str


class Indexes:
    """The indexes of one shard, which may be in use; `looked` is the number of records and entries looked at so far."""

    def __init__(self, scripts: Scripts, keys: Keys, tenants: Sequence[str]) -> None:
        self._scripts = scripts
        self._keys = keys
        self._tenants = tenants
        self.looked = 0

    def absent(self, scan: Scan, shard: Shard) -> Iterator[list[str]]:
        """Stored ids of tasks that an index lacks, a batch at a time, and each tenant that no turn will come to."""
        for batch in scan.batches(shard):
            items = [item for item in batch if not item.sid.endswith(SUCCESSOR)]
            for _ in range(LOOKS):
                items = list(self._reread(self._missing(items)))
            self.looked += len(batch)
            yield [item.sid for item in items]
        yield self._without_turn()

    def orphans(self) -> Iterator[list[Entry]]:
        """Entries of tasks that do not exist, a batch at a time."""
        sets = [self._keys.leased, self._keys.done, self._keys.dead, *map(self._keys.due, self._tenants)]
        entries = (Entry(key, member, member) for key in sets for member in self._members(key))
        groups = self._members(self._keys.groups)
        of_groups = (Entry(self._keys.groups, member, member.partition("\0")[2]) for member in groups)
        waiting = (Entry(self._keys.waiting, member, _waiting(member)) for member in self._members(self._keys.waiting))
        for found in self._without_record(chain(entries, of_groups, waiting)):
            there = self._scripts.read(*(("ZSCORE", one.key, one.member) for one in found)) if found else []
            yield [one for one, score in zip(found, there, strict=True) if score is not None]

    def _missing(self, items: Sequence[ScannedTask]) -> list[ScannedTask]:
        """The items of which an entry is absent."""
        absent = {
            entry.sid for entry in self._without_score([entry for item in items for entry in self._entries(item)])
        }
        return [item for item in items if item.sid in absent]

    def _reread(self, items: Sequence[ScannedTask]) -> Iterator[ScannedTask]:
        """The items that still exist, as they are now."""
        records = self._scripts.command("HMGET", self._keys.tasks, *(item.sid for item in items)) if items else []
        for item, data in zip(items, records, strict=True):
            with suppress(*UNREADABLE):
                if data:
                    body = item.body or None
                    yield item._replace(data=data, task=unpack(item.shard.queue, item.sid, data, body=body))

    def _entries(self, item: ScannedTask) -> Iterator[Entry]:
        task = item.task
        own = {
            Status.SCHEDULED: self._keys.due(task.tenant),
            Status.LEASED: self._keys.leased,
            Status.DEAD: self._keys.dead,
        }
        yield Entry(own.get(task.status, self._keys.done), item.sid, item.sid)
        if task.group and not (is_notification(task.id) or task.tenant == SCHEDULES):
            yield Entry(self._keys.groups, f"{task.tenant}/{task.group}\0{item.sid}", item.sid)

    def _without_score(self, entries: Sequence[Entry]) -> list[Entry]:
        scores = self._scripts.read(*(("ZSCORE", one.key, one.member) for one in entries)) if entries else []
        return [one for one, score in zip(entries, scores, strict=True) if score is None]

    def _without_record(self, entries: Iterator[Entry]) -> Iterator[list[Entry]]:
        while piece := list(islice(entries, AT_A_TIME)):
            records = self._scripts.command("HMGET", self._keys.tasks, *(entry.sid for entry in piece))
            self.looked += len(piece)
            yield [entry for entry, record in zip(piece, records, strict=True) if record is None]

    def _without_turn(self) -> list[str]:
        places = (self._keys.ring, self._keys.heads, self._keys.parked)
        reads = [
            read
            for tenant in self._tenants
            for read in (
                ("ZCOUNT", self._keys.due(tenant), "-inf", f"({NEVER}"),
                *(("ZSCORE", place, tenant) for place in places),
            )
        ]
        found = self._scripts.read(*reads) if reads else []
        every = zip(self._tenants, batched(found, 1 + len(places)), strict=True)
        return [tenant for tenant, (waiting, *turns) in every if waiting and all(turn is None for turn in turns)]

    def _members(self, key: str) -> Iterator[str]:
        cursor = 0
        while True:
            cursor, found = self._scripts.command("ZSCAN", key, cursor, "COUNT", AT_A_TIME)
            yield from (member.decode() for member, _ in found)
            if not cursor:
                return


def _waiting(member: str) -> str:
    """Stored id in an entry of what waits for a place, or of a delivery, which begins with a NUL."""
    target, second, third = (*member.split("\0", 2), "", "")[:3]
    return third if target else second


SETTINGS = tuple(settings.FIELDS)
FIELDS = ("shards", "paused", "layout", "fence")
PATIENCE_MS = 60_000
"""Time after which somebody should have claimed a due task, or taken back a lapsed lease: that of a tick."""
SLACK_MS = 2_000
SHOWN = 3
MEND = "duecourse mend"
REHUNG = "nothing to do: the next tick hangs it again"


class ShardExam:
    """Examination of one shard of a queue of `count` shards; `tenants` are those with a due set."""

    def __init__(self, scripts: Scripts, namespace: str, shard: Shard, count: int, tenants: Sequence[str]) -> None:
        self._scripts = scripts
        self._namespace = namespace
        self._shard = shard
        self._count = count
        self._keys = keys_of(namespace, shard)
        self._indexes = Indexes(scripts, self._keys, tenants)
        self._tenants = tenants

    @property
    def looked(self) -> int:
        """Number of records and entries looked at so far."""
        return self._indexes.looked

    def run(self) -> Iterator[list[Finding]]:
        """Findings on the shard, an empty list for each batch of records and entries. Raises StoreUnavailable."""
        values = self._scripts.command("HMGET", self._keys.meta, *FIELDS)
        meta = {name: value.decode() for name, value in zip(FIELDS, values, strict=True) if value}
        if other := [*self._version(meta)]:
            yield self._placed(other)  # no script runs there, and no record can be read
            return
        yield self._placed(self._reshard(meta), self._settings(), self._work(meta), self._history())
        scan = Scan(self._scripts, self._namespace, self._shard.queue)
        absent: list[str] = []
        for sids in self._indexes.absent(scan, self._shard):
            absent += sids
            yield []
        orphans: list[Entry] = []
        for entries in self._indexes.orphans():
            orphans += entries
            yield []
        yield self._placed(self._records(scan, absent, orphans))

    def _placed(self, *found: Iterable[Finding]) -> list[Finding]:
        return [finding._replace(place=str(self._shard)) for finding in chain(*found)]

    def _reshard(self, meta: dict[str, str]) -> Iterator[Finding]:
        queue, recorded = self._shard.queue, meta.get("shards", str(self._count))
        if ">" in recorded:
            was, _, to = recorded.partition("#")[0].partition(">")
            text = f"a change from {was} to {to} shards was interrupted, or is under way"
            yield Finding(Level.FAULT, "reshard", text, f"duecourse reshard {queue} {to}")
        elif recorded != str(self._count):
            text = f"has {recorded} shards, and {self._count} are registered"
            yield Finding(Level.FAULT, "reshard", text, f"duecourse reshard {queue} {recorded}")

    def _settings(self) -> Iterator[Finding]:
        """Finding on settings that differ from those of the queue's first shard."""
        first, own = self._scripts.read(
            ("HMGET", keys_of(self._namespace, Shard(self._shard.queue)).meta, *SETTINGS, "revision"),
            ("HMGET", self._keys.meta, *SETTINGS, "revision"),
        )
        names = sorted({SETTINGS[at] for at in range(len(SETTINGS)) if first[at] != own[at]})
        if names:
            text = f"its settings differ from the queue's: {', '.join(names)}"
            is_known = first[-1] and first[-1] != own[-1]
            fix = (
                "nothing to do: the next tick sets them"
                if is_known
                else f"set them again: duecourse limits {self._shard.queue}"
            )
            yield Finding(Level.WARNING, "settings", text, fix)

    def _history(self) -> Iterator[Finding]:
        """Finding on numbers over time that cannot be read."""
        texts, numbers = self._scripts.read(
            ("HMGET", self._keys.history, *HISTORY), ("HGET", self._keys.meta, "numbers")
        )
        try:
            unpack_history(texts, numbers)
        except ValueError as error:
            text = f"the numbers over time cannot be read: {error}"
            fix = f"delete them: DEL {self._keys.history} and HDEL {self._keys.meta} numbers; tasks are not touched"
            yield Finding(Level.WARNING, "history", text, fix)

    def _version(self, meta: dict[str, str]) -> Iterator[Finding]:
        version = meta.get("layout", "none" if "fence" in meta else str(VERSION))
        if version != str(VERSION):
            text = f"records are of version {version}, and this release reads {VERSION}: nothing here runs"
            fix = way_out(int(version) if version.isdecimal() else 0)
            yield Finding(Level.FAULT, "version of records", text, fix)

    def _work(self, meta: dict[str, str]) -> Iterator[Finding]:
        if meta.get("paused"):
            yield Finding(Level.NOTE, "pause", "the queue is paused", f"duecourse resume {self._shard.queue}")
            return
        seconds, micros = self._scripts.command("TIME")
        now = int(seconds) * 1_000 + int(micros) // 1_000
        yield from self._leases(now)
        due = {tenant: self._first(self._keys.due(tenant)) for tenant in self._tenants}
        waiting = {tenant: at for tenant, at in due.items() if at and at < NEVER}
        limits = {tenant: "" if tenant == SCHEDULES else self._limit(tenant) for tenant in waiting}
        free = [at for tenant, at in waiting.items() if not limits[tenant]]
        for limit in sorted({limit for limit in limits.values() if limit}):
            yield Finding(Level.NOTE, "due tasks", f"not checked: they wait, for the limit {limit} is reached")
        if free:
            yield from self._overdue(min(free), now)
            yield from self._bell(min(free), now)

    def _limit(self, tenant: str) -> str:
        """The limit by which the tenant's tasks wait now; "" for none, and for a shard that is being moved."""
        request = self._scripts.request(self._keys, [tenant], [], self._count)
        answer = self._scripts.evaluate("throttle", request)
        return bytes(answer[1]).decode() if isinstance(answer, list) else ""

    def _leases(self, now: int) -> Iterator[Finding]:
        lapsed = int(self._scripts.command("ZCOUNT", self._keys.leased, 1, now - PATIENCE_MS))
        if lapsed:
            text = f"{counted(lapsed, 'lease')} lapsed over a minute ago, and no tick has taken any back since"
            yield Finding(Level.FAULT, "leases", text, "look at poll_tick: its schedule, its log, its alarms")

    def _overdue(self, oldest: int, now: int) -> Iterator[Finding]:
        if now - oldest > PATIENCE_MS:
            text = f"a task has been due for {span(now - oldest)}, and nobody claims it"
            yield Finding(Level.FAULT, "due tasks", text, "look at poll_tick and on_expired; duecourse why ID")

    def _bell(self, first: int, now: int) -> Iterator[Finding]:
        if first < now + SLACK_MS:
            return  # it may have rung a moment ago
        at = bell_time(self._scripts.command("GET", self._keys.bell))
        level = Level.NOTE if first - now > PATIENCE_MS else Level.WARNING  # a tick comes before the task is due
        if at is None:
            yield Finding(level, "bell", f"is missing, and a task is due in {span(first - now)}", REHUNG)
        elif at > first + SLACK_MS:
            yield Finding(level, "bell", f"{span(at - first)} late, for a task is due in {span(first - now)}", REHUNG)

    def _first(self, key: str) -> int:
        first = self._scripts.command("ZRANGE", key, 0, 0)
        return int(self._scripts.command("ZSCORE", key, first[0]) or 0) if first else 0

    def _records(self, scan: Scan, absent: list[str], orphans: list[Entry]) -> Iterator[Finding]:
        if absent:
            yield Finding(Level.FAULT, "tasks without an entry", _some(absent), MEND)
        if orphans:
            text = _some([f"{one.member!r} in {one.key.removeprefix(self._keys.prefix)}" for one in orphans])
            yield Finding(
                Level.WARNING,
                "entries without a task",
                text,
                "nothing to do: claims and sweeps drop them, and those of groups do no harm",
            )
        for sid, problem in list(scan.unreadable.items())[:SHOWN]:
            yield self._unreadable(sid, problem)

    def _unreadable(self, sid: str, problem: str) -> Finding:
        tenant, _, id = sid.partition("/")
        if tenant == SCHEDULES:
            owner, _, id = id.partition("/")
            fix = f"DELETE /schedules/{id}?queue={self._shard.queue} as tenant {owner}, and add it again"
            return Finding(Level.FAULT, "unreadable schedule", f"{id} of tenant {owner}: {problem}", fix)
        fix = f"duecourse cancel {id} --queue {self._shard.queue} --tenant {tenant} --force"
        return Finding(Level.FAULT, "unreadable task", f"{id} of tenant {tenant}: {problem}", fix)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)}: {', '.join(names[:SHOWN])}{more}"
