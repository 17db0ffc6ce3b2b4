"""Change of the number of a queue's shards: every task moves, as it is, to the shard that is its own then.

No other process may touch the queue meanwhile: its shards' meta has `<from>><to>#<who>`, and scripts reject each call
that does not give the same text. A task is put into its new shard before it is dropped from its old one, so that the
change may be killed at any point. The next run writes its own `who`, and puts again the tasks that were not dropped.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NoReturn

from duecourse.adapters.redis.arguments import Argument, tenants_of
from duecourse.adapters.redis.connect import Client
from duecourse.adapters.redis.keys import keys_of, leaving_key, ledger_key, on_record, shards_key
from duecourse.adapters.redis.queue_settings import FIELDS, as_fields, settings_of
from duecourse.adapters.redis.scan import Item, Scan
from duecourse.adapters.redis.scripts import RESHARDED, Scripts
from duecourse.adapters.redis.store import RedisStore
from duecourse.domain.queues import QueueSettings, check_split
from duecourse.domain.shards import Sharding, by_shard
from duecourse.domain.task import Shard
from duecourse.errors import InvalidInput, StoreMisused

LOOK_S = 0.1
FOREVER_MS = 10**15
SHOWN = 5


@dataclass(eq=False)
class Reshard:
    """One change of one queue; `report` receives a line now and then, `wait` and `deaths` are as for the store.

    Raises StoreMisused and StoreUnavailable.
    """

    client: Client
    namespace: str
    queue: str
    to: int
    report: Callable[[str], object]
    _: KW_ONLY
    wait: int = 0
    deaths: bool = False

    def __post_init__(self) -> None:
        self._scripts = Scripts(self.client, None)
        self._scan = Scan(self._scripts, self.namespace, self.queue)
        self._was = self._find_count()
        self._closed = f"{self._was}>{self.to}#{secrets.token_hex(4)}"
        self._shards = [Shard(self.queue, number) for number in range(max(self._was, self.to))]
        self._future = Sharding({self.queue: self.to})
        self._fence = 0
        self._paused = False
        self._claimed_at = 0

    def run(self, patience_s: float) -> int:
        """Move every task, waiting at most `patience_s` for leases to end; answers how many there are.

        Raises StoreMisused, with the queue open as it was, where leases last longer, or tasks would meet in one shard.
        """
        if not self._was:
            self.report(f"nothing was ever added to {self.queue}: setting DUECOURSE_SHARDS is enough")
            return 0
        if self._was == self.to:
            self._tidy()
            self.report(f"{self.queue} already has {self.to} shards")
            return 0
        self._check_limits()
        self._pause(patience_s)
        self._close()
        total = self._check()
        self.report(f"moved {sum(map(self._empty, self._shards))} of {total} tasks; the others stay in their shard")
        for shard in reversed(self._shards):  # the first tells that this is under way: it comes last
            self._reopen(shard, self.to, self._closed)
        self._put_on_record()
        return total

    def _find_count(self) -> int:
        """Number of shards before this change, or before the one that was interrupted."""
        recorded = self._meta(Shard(self.queue))
        was = recorded.partition(">")[0]
        if ">" in recorded:
            self._refuse_another(recorded, int(was))
        return int(was) if was else max((count for _, count in self._on_record()), default=0)

    def _refuse_another(self, recorded: str, was: int) -> None:
        """Raise StoreMisused if the text in a meta is that of another change."""
        change = recorded.partition("#")[0]
        if change != f"{was}>{self.to}":
            raise StoreMisused(
                f"a change of {self.queue} from {change.replace('>', ' to ')} shards was interrupted: "
                f"run `duecourse reshard {self.queue} {change.partition('>')[2]}` first"
            )

    def _tidy(self) -> None:
        """Finish a change that was given up while it waited for leases, or killed before it was on record."""
        for shard in self._shards:
            if self._meta(shard, "paused") == "reshard":
                self._reopen(shard, self.to, self._meta(shard) or str(self.to))
        if {count for _, count in self._on_record()} != {self.to}:
            self._put_on_record()

    def _check_limits(self) -> None:
        """Raise StoreMisused where a limit cannot be divided by the new number of shards."""
        try:
            check_split(self._settings(), self.to)
        except InvalidInput as error:
            raise StoreMisused(f"{error}; raise it first: nothing is changed") from error

    def _pause(self, patience_s: float) -> None:
        until = time.monotonic() + patience_s
        was = Sharding({self.queue: self._was})
        store = RedisStore(self.client, self.namespace, sharding=was, deaths=self.deaths)
        while leased := {shard: count for shard in self._shards if (count := self._close_one(shard, ""))}:
            if time.monotonic() >= until:
                running = sum(leased.values())
                self._give_up(f"{running} tasks of {self.queue} are leased: let them settle, or give a longer --wait")
            self.report(f"paused; waiting for {sum(leased.values())} leases to end")
            for shard in leased:
                store.sweep(shard, retention_ms=FOREVER_MS)  # takes back those that have lapsed
            time.sleep(LOOK_S)

    def _close(self) -> None:
        if any(self._close_one(shard, self._closed) for shard in self._shards):
            self._give_up(f"somebody resumed {self.queue} meanwhile")

    def _close_one(self, shard: Shard, value: str) -> int:
        """Number of leases; with none the shard is closed. Raises StoreMisused where another change has it."""
        recorded = self._meta(shard) or str(self._was)
        if ">" in recorded:
            self._refuse_another(recorded, self._was)
        elif shard.number < self._was and int(recorded) not in {self._was, self.to}:
            raise StoreMisused(f"{self.queue} has {recorded} shards since another reshard ended: run this again")
        leased, fence, paused, claimed_at = self._run("close", shard, (), (value,), recorded)[2:]
        self._fence = max(self._fence, fence)
        self._paused = self._paused or bool(paused)
        self._claimed_at = max(self._claimed_at, claimed_at)
        return int(leased)

    def _give_up(self, why: str) -> NoReturn:
        """Open the shards as they were, unless tasks have moved already."""
        if self._has_moved():
            raise StoreMisused(f"{why}; {self.queue} stays closed until this is run again")
        self._claimed_at = 0  # their logs are as they were
        for shard in self._shards:
            self._reopen(shard, self._was, self._meta(shard) or str(self._was))
        raise StoreMisused(f"{why}; nothing is changed")

    def _reopen(self, shard: Shard, count: int, recorded: str) -> None:
        """Open a shard; the meta of one beyond the count stays, so that callers with the old count are rejected."""
        settings = replace(self._settings(), paused=self._paused and shard.number < count)
        more = {
            "layout": self._version(shard),
            "default_quotas": self._meta(Shard(self.queue), "default_quotas"),
            "revision": self._meta(Shard(self.queue), "revision"),
        }
        fields = [part for pair in (as_fields(settings) | more).items() for part in pair]
        self._run("reopen", shard, (), (count, self._fence, self._claimed_at, *fields), recorded)

    def _version(self, shard: Shard) -> str:
        """Version of a shard's records, else of the queue's first shard that had some, else of new ones."""
        for one in (shard, *self._shards):
            version = self._meta(one, "layout")
            if version or self._meta(one, "fence"):
                return version
        newest: bytes | None = self._scripts.command("HGET", ledger_key(self.namespace), "layout")
        return newest.decode() if newest else ""

    def _settings(self) -> QueueSettings:
        """The queue's settings by its first shard, which exists before and after."""
        return settings_of(self._scripts.command("HMGET", keys_of(self.namespace, Shard(self.queue)).meta, *FIELDS))

    def _has_moved(self) -> bool:
        before = Sharding({self.queue: self._was})
        return any(self._home(item, before) != item.shard for item in self._scan.every(self._shards))

    def _check(self) -> int:
        """Number of tasks. Raises StoreMisused where two would meet under one id, or one cannot be read."""
        # Hashes, for a queue may be large. The same record twice is one: HSCAN may repeat itself, and a task that was
        # put may not have been dropped yet.
        seen: dict[tuple[Shard, str], int] = {}
        meet: list[str] = []
        for item in self._scan.every(self._shards):
            place, it = (self._home(item), item.sid), hash(item.data)
            if seen.setdefault(place, it) != it:
                meet.append(item.task.id)
        for sid, problem in self._scan.unreadable.items():
            self._give_up(f"the record of {sid} in {self.queue} cannot be read: {problem}")
        if meet:
            self._give_up(f"ids that are in several groups would meet in one shard: {', '.join(meet[:SHOWN])}")
        return len(seen)

    def _empty(self, shard: Shard) -> int:
        """Move the tasks of other shards out of one; answers their number.

        A scan that found any is followed by another: its cursor means nothing to a server that has started since, or
        has taken over.
        """
        moved, before = 0, -1
        while moved > before:
            before = moved
            for items in self._scan.batches(shard):
                if going := [item for item in items if self._home(item) != shard]:
                    self._move(shard, going)
                    moved += len(going)
                    self.report(f"{shard}: moved {moved} tasks")
        return moved

    def _move(self, shard: Shard, items: Sequence[Item]) -> None:
        whens = self._scan.whens(shard, items)
        for home, chosen in by_shard([self._home(item) for item in items]).items():
            moving = [part for i in chosen for part in (items[i].sid, whens[i], items[i].data, items[i].body)]
            self._run("put", home, tenants_of(items[i].task for i in chosen), (0, *moving))
        self._run("drop", shard, tenants_of(item.task for item in items), [item.sid for item in items])

    def _home(self, item: Item, sharding: Sharding | None = None) -> Shard:
        return (sharding or self._future).of(self.queue, item.task.id, item.task.group)

    def _put_on_record(self) -> None:
        old = [f"{shard}/{count}" for shard, count in self._on_record()]
        new = [f"{shard}/{self.to}" for shard in self._future.every(self.queue)]
        keys = (shards_key(self.namespace), leaving_key(self.namespace), ledger_key(self.namespace))
        words: tuple[Argument, ...] = (self._scripts.clock(), self.queue, self.to, len(old), *old, *new)
        self._scripts.evaluate("recount", (len(keys), (*keys, *words)))

    def _on_record(self) -> list[tuple[Shard, int]]:
        members = on_record(self._scripts.command("SMEMBERS", shards_key(self.namespace)))
        return [(shard, count) for shard, count in members if shard.queue == self.queue]

    def _meta(self, shard: Shard, field: str = "shards") -> str:
        found: bytes | None = self._scripts.command("HGET", keys_of(self.namespace, shard).meta, field)
        return found.decode() if found else ""

    def _run(
        self, verb: str, shard: Shard, tenants: Sequence[str], arguments: Sequence[Argument], count: str = ""
    ) -> Any:
        request = self._scripts.request(keys_of(self.namespace, shard), tenants, arguments, count or self._closed)
        # The two shards may be on two servers: a failover of one must not lose what the other has dropped.
        answer = self._scripts.evaluate(verb, request, replicas=self.wait if verb == "put" else 0)
        if answer == RESHARDED:
            raise StoreMisused(f"another reshard of {self.queue} has begun: this one ends")
        return answer
