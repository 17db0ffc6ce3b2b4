"""Checks of one shard: its number of shards, its version, its leases, its bell, its records and indexes."""

from collections.abc import Iterator, Sequence
from itertools import chain

from duecourse.adapters.redis import queue_settings as settings
from duecourse.adapters.redis.keys import hung_at, keys_of
from duecourse.adapters.redis.layout import NEWEST, OLDEST
from duecourse.adapters.redis.scan import Scan
from duecourse.adapters.redis.scripts import Scripts
from duecourse.domain.schedule import NEVER
from duecourse.domain.schedule import TENANT as SCHEDULES
from duecourse.domain.spoken import counted, span
from duecourse.domain.task import Shard

from .finding import Finding, Level
from .indexes import Entry, Indexes

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
        yield self._here(self._reshard(meta), self._settings(), self._version(meta), self._work(meta))
        scan = Scan(self._scripts, self._namespace, self._shard.queue)
        absent: list[str] = []
        for sids in self._indexes.absent(scan, self._shard):
            absent += sids
            yield []
        orphans: list[Entry] = []
        for entries in self._indexes.orphans():
            orphans += entries
            yield []
        yield self._here(self._records(scan, absent, orphans))

    def _here(self, *found: Iterator[Finding]) -> list[Finding]:
        return [finding._replace(place=str(self._shard)) for finding in chain(*found)]

    def _reshard(self, meta: dict[str, str]) -> Iterator[Finding]:
        queue, recorded = self._shard.queue, meta.get("shards", str(self._count))
        if ">" in recorded:
            was, _, to = recorded.partition("#")[0].partition(">")
            text = f"a change from {was} to {to} shards was interrupted, or is under way"
            yield Finding(Level.FAULT, "reshard", text, f"duecourse reshard {queue} {to}")
        elif recorded != str(self._count):
            text = f"has {recorded} shards, and {self._count} on record"
            yield Finding(Level.FAULT, "reshard", text, f"duecourse reshard {queue} {recorded}")

    def _settings(self) -> Iterator[Finding]:
        """Settings that this shard has otherwise than its queue's first one, whose are the queue's."""
        first, own = self._scripts.read(
            ("HMGET", keys_of(self._namespace, Shard(self._shard.queue)).meta, *SETTINGS, "revision"),
            ("HMGET", self._keys.meta, *SETTINGS, "revision"),
        )
        names = sorted({SETTINGS[at] for at in range(len(SETTINGS)) if first[at] != own[at]})
        if names:
            text = f"other settings than the queue's: {', '.join(names)}"
            is_known = first[-1] and first[-1] != own[-1]
            fix = (
                "nothing to do: the next tick sets them"
                if is_known
                else f"set them again: duecourse limits {self._shard.queue}"
            )
            yield Finding(Level.WARNING, "settings", text, fix)

    def _version(self, meta: dict[str, str]) -> Iterator[Finding]:
        version = int(meta.get("layout") or (OLDEST if "fence" in meta else NEWEST))
        if version < NEWEST:
            text = f"records are of version {version}, which 0.1.0 can read, and this version writes {NEWEST}"
            yield Finding(Level.NOTE, "version of records", text, "duecourse upgrade, once no program of 0.1.0 is left")

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
            yield Finding(Level.NOTE, "due tasks", f"not checked: limited, {limit} is reached")
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
        at = hung_at(self._scripts.command("GET", self._keys.bell))
        level = Level.NOTE if first - now > PATIENCE_MS else Level.WARNING  # a tick comes before the task is due
        if at is None:
            yield Finding(level, "bell", f"missing, and a task is due in {span(first - now)}", REHUNG)
        elif at > first + SLACK_MS:
            yield Finding(level, "bell", f"{span(at - first)} late, and a task is due in {span(first - now)}", REHUNG)

    def _first(self, key: str) -> int:
        first = self._scripts.command("ZRANGE", key, 0, 0)
        return int(self._scripts.command("ZSCORE", key, first[0]) or 0) if first else 0

    def _records(self, scan: Scan, absent: list[str], orphans: list[Entry]) -> Iterator[Finding]:
        if absent:
            yield Finding(Level.FAULT, "tasks without an entry", _some(absent), MEND)
        if orphans:
            text = _some([f"{one.member!r} in {one.key.removeprefix(self._keys.prefix)}" for one in orphans])
            yield Finding(
                Level.WARNING, "entries without a task", text, "claims and sweeps drop them; of groups, harmless"
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
