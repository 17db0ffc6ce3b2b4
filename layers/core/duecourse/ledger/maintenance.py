"""Maintenance of a ledger in Redis: another number of shards for a queue, and repair by records."""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple, NoReturn

from duecourse.base.batches import batched, cut
from duecourse.base.times import Clock
from duecourse.errors import InvalidInput, StoreMisused
from duecourse.ledger.connect import Client
from duecourse.ledger.keys import (
    FIELDS,
    as_fields,
    keys_of,
    leaving_key,
    ledger_key,
    parse_shards,
    settings_of,
    shards_key,
)
from duecourse.ledger.layout import VERSION
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import QueueSettings, check_split
from duecourse.ledger.queue_history import FIELDS as HISTORY
from duecourse.ledger.record import UNREADABLE, body_field, unpack
from duecourse.ledger.script_calls import RESHARDED, Scripts
from duecourse.ledger.script_codec import MAX_PIECE_BYTES, Argument, tenants_of
from duecourse.ledger.sharding import Sharding, by_shard
from duecourse.ledger.task import Shard, Status, Task

# Scan of all tasks of a queue's shards, as they are, some perhaps twice.

APART = "="
"""Part of each name of a payload's own field, and of no stored id."""
SUCCESSOR = "+"
"""End of a stored id under which a task waits for the lease of the one before; its payload's field is named without."""
BATCH = 200
"""Most tasks that are asked for at a time."""
FIRST = 8
"""Tasks that are asked for first; their size gives the number whose bytes are MAX_PIECE_BYTES."""


class ScannedTask(NamedTuple):
    """A task: the shard it is in, its record as it is and as it is packed, its payload if apart from that."""

    shard: Shard
    sid: str
    data: bytes
    task: Task
    body: bytes

    @property
    def size(self) -> int:
        """Bytes of its record and payload."""
        return len(self.data) + len(self.body)


class Scan:
    """The tasks of one queue; `unreadable` are the stored ids of records that could not be read, and why."""

    def __init__(self, scripts: Scripts, namespace: str, queue: str) -> None:
        self._scripts = scripts
        self._namespace = namespace
        self._queue = queue
        self.unreadable: dict[str, str] = {}

    def every(self, shards: Sequence[Shard]) -> Iterator[ScannedTask]:
        """All tasks of some shards."""
        return (item for shard in shards for batch in self.batches(shard) for item in batch)

    def batches(self, shard: Shard) -> Iterator[list[ScannedTask]]:
        """A shard's tasks, at most BATCH at a time, fewer where they are large: meanwhile Redis serves nobody else."""
        tasks, cursor, count = keys_of(self._namespace, shard).tasks, 0, FIRST
        while True:
            cursor, found = self._scripts.command("HSCAN", tasks, cursor, "COUNT", count)
            items = self._readable(shard, {name.decode(): data for name, data in found.items()})
            # A scan may find more than was asked for.
            yield from cut(items, lambda item: item.size, most=BATCH, max_bytes=MAX_PIECE_BYTES)
            if not cursor:
                return
            size = sum(map(len, found.values()))
            count = max(1, min(BATCH, MAX_PIECE_BYTES * len(found) // size)) if size else BATCH

    def whens(self, shard: Shard, items: Sequence[ScannedTask]) -> list[int]:
        """Instants at which each is due, or was done or dead."""
        keys, sids = keys_of(self._namespace, shard), [item.sid for item in items]
        done, dead = self._scripts.read(("ZMSCORE", keys.done, *sids), ("ZMSCORE", keys.dead, *sids))
        return [
            item.task.due_at if item.task.status is Status.SCHEDULED else int(ended or died or 0)
            for item, ended, died in zip(items, done, dead, strict=True)
        ]

    def _readable(self, shard: Shard, found: Mapping[str, bytes]) -> Iterator[ScannedTask]:
        # A scan meets a record and its payload at different times: payloads are read with their records.
        records = {name: data for name, data in found.items() if APART not in name}
        bodies: dict[str, bytes] = {}
        if fields := {
            sid: field for sid, data in records.items() if (field := body_field(sid.removesuffix(SUCCESSOR), data))
        }:
            payloads = self._scripts.command("HMGET", keys_of(self._namespace, shard).tasks, *fields.values())
            bodies = dict(zip(fields, payloads, strict=True))
        for sid, data in records.items():
            body = bodies.get(sid)
            try:
                yield ScannedTask(shard, sid, data, unpack(self._queue, sid, data, body=body), body or b"")
            except UNREADABLE as error:
                self.unreadable[sid] = str(error)


# Change of the number of a queue's shards.
#
# No other process may touch the queue meanwhile. So its shards' meta has `<from>><to>#<who>`, and scripts reject each
# call that does not give the same text. The change may be killed at any point, for a task is put into its new shard
# before it is dropped from its old one. The next run writes its own `who`, and puts again the tasks that were not
# dropped.

LOOK_S = 0.1
FOREVER_MS = 10**15
SHOWN = 5


@dataclass(eq=False)
class Reshard:
    """One change of one queue; `report` receives a line now and then, `wait` and `deaths` are as for a Ledger.

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
            if shard.number >= self.to:
                self._move_history(shard)
            self._reopen(shard, self.to, self._closed)
        self._register_all()
        return total

    def _find_count(self) -> int:
        """Number of shards before this change, or before the one that was interrupted."""
        recorded = self._meta(Shard(self.queue))
        was = recorded.partition(">")[0]
        if ">" in recorded:
            self._refuse_another(recorded, int(was))
        return int(was) if was else max((count for _, count in self._registered()), default=0)

    def _refuse_another(self, recorded: str, was: int) -> None:
        """Raise StoreMisused if the text in a meta is that of another change."""
        change = recorded.partition("#")[0]
        if change != f"{was}>{self.to}":
            raise StoreMisused(
                f"a change of {self.queue} from {change.replace('>', ' to ')} shards was interrupted: "
                f"run `duecourse reshard {self.queue} {change.partition('>')[2]}` first"
            )

    def _tidy(self) -> None:
        """Finish a change that was given up while it waited for leases, or killed before it was registered."""
        for shard in self._shards:
            if self._meta(shard, "paused") == "reshard":
                self._reopen(shard, self.to, self._meta(shard) or str(self.to))
        if {count for _, count in self._registered()} != {self.to}:
            self._register_all()

    def _check_limits(self) -> None:
        """Raise StoreMisused where a limit cannot be divided by the new number of shards."""
        try:
            check_split(self._settings(), self.to)
        except InvalidInput as error:
            raise StoreMisused(f"{error}; raise it first: nothing is changed") from error

    def _pause(self, patience_s: float) -> None:
        until = time.monotonic() + patience_s
        was = Sharding({self.queue: self._was})
        ledger = Ledger(self.client, self.namespace, sharding=was, deaths=self.deaths)
        while leased := {shard: count for shard in self._shards if (count := self._close_one(shard, ""))}:
            if time.monotonic() >= until:
                running = sum(leased.values())
                self._give_up(
                    f"tasks of {self.queue} still run, {running} of them: let them end, or give a longer --wait"
                )
            self.report(f"{self.queue} is paused; tasks that still run: {sum(leased.values())}")
            for shard in leased:
                ledger.sweep(shard, retention_ms=FOREVER_MS)  # takes back those that have lapsed
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
            raise StoreMisused(f"{self.queue} has {recorded} shards since another reshard ended: run the command again")
        leased, fence, paused, claimed_at = self._run("close", shard, (), (value,), recorded)[2:]
        self._fence = max(self._fence, fence)
        self._paused = self._paused or bool(paused)
        self._claimed_at = max(self._claimed_at, claimed_at)
        return int(leased)

    def _give_up(self, why: str) -> NoReturn:
        """Open the shards as they were, unless tasks have moved already."""
        if self._has_moved():
            raise StoreMisused(f"{why}; {self.queue} stays closed until the command is run again")
        self._claimed_at = 0  # their logs are as they were
        for shard in self._shards:
            self._reopen(shard, self._was, self._meta(shard) or str(self._was))
        raise StoreMisused(f"{why}; nothing is changed")

    def _reopen(self, shard: Shard, count: int, recorded: str) -> None:
        """Open a shard; the meta of one beyond the count stays, so that callers with the old count are rejected."""
        settings = replace(self._settings(), paused=self._paused and shard.number < count)
        more: dict[str, str | int] = {
            "layout": VERSION,
            "default_quotas": self._meta(Shard(self.queue), "default_quotas"),
            "revision": self._meta(Shard(self.queue), "revision"),
        }
        fields = [part for pair in (as_fields(settings) | more).items() for part in pair]
        self._run("reopen", shard, (), (count, self._fence, self._claimed_at, *fields), recorded)

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
            self._give_up(
                f"tasks of different groups have the same id, and would meet in one shard: {', '.join(meet[:SHOWN])}"
            )
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

    def _move(self, shard: Shard, items: Sequence[ScannedTask]) -> None:
        whens = self._scan.whens(shard, items)
        for home, chosen in by_shard([self._home(item) for item in items]).items():
            moving = [part for i in chosen for part in (items[i].sid, whens[i], items[i].data, items[i].body)]
            self._run("take_in", home, tenants_of(items[i].task for i in chosen), (0, *moving))
        self._run("drop", shard, tenants_of(item.task for item in items), [item.sid for item in items])

    def _move_history(self, shard: Shard) -> None:
        """Give the numbers over time of a shard that goes to one that stays.

        If the change is killed after it, before the shard is opened, the next run adds them once more.
        """
        keys = keys_of(self.namespace, shard)
        texts, numbers = self._scripts.read(("HMGET", keys.history, *HISTORY), ("HGET", keys.meta, "numbers"))
        home, found = Shard(shard.queue, shard.number % self.to), [text or b"" for text in (*texts, numbers)]
        if any(found):
            self._run("take_in_history", home, (), found)

    def _home(self, item: ScannedTask, sharding: Sharding | None = None) -> Shard:
        return (sharding or self._future).of(self.queue, item.task.id, item.task.group)

    def _register_all(self) -> None:
        old = [f"{shard}/{count}" for shard, count in self._registered()]
        new = [f"{shard}/{self.to}" for shard in self._future.every(self.queue)]
        keys = (shards_key(self.namespace), leaving_key(self.namespace), ledger_key(self.namespace))
        words: tuple[Argument, ...] = (self._scripts.clock(), self.queue, self.to, len(old), *old, *new)
        self._scripts.evaluate("recount", (len(keys), (*keys, *words)))

    def _registered(self) -> list[tuple[Shard, int]]:
        members = parse_shards(self._scripts.command("SMEMBERS", shards_key(self.namespace)))
        return [(shard, count) for shard, count in members if shard.queue == self.queue]

    def _meta(self, shard: Shard, field: str = "shards") -> str:
        found: bytes | None = self._scripts.command("HGET", keys_of(self.namespace, shard).meta, field)
        return found.decode() if found else ""

    def _run(
        self, verb: str, shard: Shard, tenants: Sequence[str], arguments: Sequence[Argument], count: str = ""
    ) -> Any:
        request = self._scripts.request(keys_of(self.namespace, shard), tenants, arguments, count or self._closed)
        # The two shards may be on two servers: a failover of one must not lose what the other has dropped.
        answer = self._scripts.evaluate(verb, request, replicas=self.wait if verb == "take_in" else 0)
        if answer == RESHARDED:
            raise StoreMisused(f"another reshard of {self.queue} has begun: this one ends")
        return answer


# Repair of a ledger by its records: keys were deleted or evicted, or the server rejected a change half way.

MOST_LEASES = 5_000
"""Number of leases up to which a script counts them in one go."""
AT_ONCE = 1_000
TRIES = 5
ALL, ALL_BUT_LEASES = 1, 2
"""Modes of the script: it counts all again, or all but leases."""


class Mended(NamedTuple):
    """Number of tasks that were looked at, of entries that were put right, and of records that cannot be read."""

    tasks: int
    put_back: int
    unreadable: int


class Mend:
    """One repair of one ledger; `report` receives a line for each repaired shard.

    The queues stay open. Raises StoreMisused and StoreUnavailable.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        lease_ms: int,
        report: Callable[[str], object],
        clock: Clock | None = None,
    ) -> None:
        """`clock` is in place of the server's, for a ledger in this process."""
        self._scripts = Scripts(client, clock)
        self._namespace = namespace
        self._lease_ms = lease_ms
        self._report = report

    def run(self) -> Mended:
        """Look at every task of every registered shard, and put right what is missing or wrong."""
        members = sorted(parse_shards(self._scripts.command("SMEMBERS", shards_key(self._namespace))))
        found = [self._mend(shard, count) for shard, count in members]
        return Mended(*map(sum, zip(*found, strict=True))) if found else Mended(0, 0, 0)

    def _mend(self, shard: Shard, count: int) -> Mended:
        scan, tasks, put_back = Scan(self._scripts, self._namespace, shard.queue), 0, 0
        for batch in scan.batches(shard):
            items = [item for item in batch if not item.sid.endswith(SUCCESSOR)]
            put_back += self._put_back(shard, count, items)
            tasks += len(items)
        few = self._leases(shard)[1] <= MOST_LEASES
        put_back += self._put_back(shard, count, [], anew=ALL if few else ALL_BUT_LEASES)
        if not few and not any(self._count_leases(shard, count) for _ in range(TRIES)):
            self._report(f"{shard}: leases changed while they were counted: run this again at a quieter time")
        if put_back:
            self._report(f"{shard}: put {put_back} entries right")
        for sid, problem in scan.unreadable.items():
            self._report(f"{shard}: the record of {sid} cannot be read: {problem}")
        return Mended(tasks, put_back, len(scan.unreadable))

    def _put_back(self, shard: Shard, count: int, items: Sequence[ScannedTask], *, anew: int = 0) -> int:
        """Number of entries of some tasks that were missing or wrong; `anew` is a mode of the script."""
        tenants, sids = tenants_of(item.task for item in items), [item.sid for item in items]
        return self._run(shard, count, tenants, (anew, *sids))

    def _leases(self, shard: Shard) -> tuple[int, int]:
        """The shard's newest fence and number of leases: where both stay, so do the leases."""
        keys = keys_of(self._namespace, shard)
        fence, leased = self._scripts.read(("HGET", keys.meta, "fence"), ("ZCARD", keys.leased))
        return int(fence or 0), leased

    def _count_leases(self, shard: Shard, count: int) -> bool:
        """Count the leases of each tenant in steps; False where they changed meanwhile."""
        fence, leased = self._leases(shard)
        keys = keys_of(self._namespace, shard)
        sids = dict(self._every("ZSCAN", keys.leased))
        running = Counter(b"running:" + sid.partition(b"/")[0] for sid in sids)
        told = {name: int(value) for name, value in self._every("HSCAN", keys.meta) if name.startswith(b"running:")}
        wrong = [name for name in running | told if running[name] != told.get(name)]
        for some in batched(wrong, AT_ONCE):
            counts = (word for name in some for word in (name, running[name] or ""))
            if self._run(shard, count, (), (f"{fence} {leased}", *counts)) < 0:
                return False
        return self._leases(shard) == (fence, leased)

    def _every(self, command: str, key: str) -> Iterator[tuple[bytes, Any]]:
        """All pairs of a large collection, a bounded step at a time; one that changes may come twice."""
        cursor = 0
        while True:
            cursor, found = self._scripts.command(command, key, cursor, "COUNT", AT_ONCE)
            yield from found.items() if isinstance(found, dict) else found
            if not int(cursor):
                return

    def _run(self, shard: Shard, count: int, tenants: Sequence[str], arguments: Sequence[Argument]) -> int:
        request = self._scripts.request(keys_of(self._namespace, shard), tenants, (self._lease_ms, *arguments), count)
        answer = self._scripts.evaluate("mend", request)
        if answer == RESHARDED:
            raise StoreMisused(f"The number of shards of {shard.queue} is being changed: run this again after that")
        return int(answer[2])
