"""Giving a queue another number of shards: every task moves to the shard that is its own then, as it is.

Nobody else may touch the queue meanwhile: its shards' meta says `<from>><to>#<who>`, which all scripts refuse but those
of who wrote it. A task is put into its new shard before it is dropped from its old one, so that this may be killed at
any point: what runs next writes itself as `who`, and puts again what was not dropped.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn

from duecourse.adapters.record import UNREADABLE, unpack
from duecourse.adapters.redis_connect import Client, node_of
from duecourse.adapters.redis_keys import keys_of, shards_key
from duecourse.adapters.redis_queues import as_fields, settings_in
from duecourse.adapters.redis_scripts import RESHARDED, Scripts
from duecourse.adapters.redis_store import RedisStore
from duecourse.domain.queues import QueueSettings, check_split
from duecourse.domain.shards import Sharding
from duecourse.domain.task import Shard, Status, Task
from duecourse.errors import InvalidInput, StoreMisused

BATCH = 200
LOOK_S = 0.1
FOREVER_MS = 10**15
SHOWN = 5


class Item(NamedTuple):
    """A task on its way: its record, as it is and as it is packed."""

    sid: str
    data: bytes
    task: Task


class Reshard:
    """One change of one queue; `tell` is given a line now and then. Raises StoreMisused and StoreUnavailable."""

    def __init__(self, client: Client, namespace: str, queue: str, to: int, tell: Callable[[str], object]) -> None:
        self._client = client
        self._namespace = namespace
        self._queue = queue
        self._to = to
        self._tell = tell
        self._scripts = Scripts(client, None)
        self._was = self._find_count()
        self._closed = f"{self._was}>{to}#{secrets.token_hex(4)}"
        self._shards = [Shard(queue, number) for number in range(max(self._was, to))]
        self._future = Sharding({queue: to})
        self._fence = 0
        self._paused = False
        self._claimed_at = 0

    def run(self, patience_s: float) -> int:
        """Move every task, waiting at most `patience_s` for leases to end; answers how many there are.

        Raises StoreMisused, with the queue open as it was, where leases last longer, or tasks would meet in one shard.
        """
        if self._is_done():
            return 0
        self._check_limits()
        self._pause(patience_s)
        self._close()
        total = self._check()
        moved = sum(self._empty(shard) for shard in self._shards)
        self._tell(f"moved {moved} of {total} tasks; the others are where they belong")
        for shard in reversed(self._shards):  # the first tells that this is under way: it comes last
            self._reopen(shard, self._to, self._closed)
        self._put_on_record()
        return total

    def _find_count(self) -> int:
        """How many shards the queue had before this, or before what was interrupted."""
        told = self._told(Shard(self._queue))
        if ">" in told:
            was, _, to = told.partition("#")[0].partition(">")
            if int(to) != self._to:
                raise StoreMisused(
                    f"a change of {self._queue} from {was} to {to} shards was interrupted: "
                    f"run `python -m local reshard {self._queue} {to}` first"
                )
            return int(was)
        counts = {int(member.rpartition("/")[2]) for member in self._on_record()}
        return max(counts, default=0)

    def _is_done(self) -> bool:
        if not self._was:
            self._tell(f"nothing was ever added to {self._queue}: DUECOURSE_SHARDS is all it needs")
        elif self._was == self._to and ">" not in self._told(Shard(self._queue)):
            self._tell(f"{self._queue} has {self._to} shards already")
        else:
            return False
        return True

    def _check_limits(self) -> None:
        """Raise StoreMisused where a limit cannot be divided by the new number of shards."""
        try:
            check_split(self._settings(), self._to)
        except InvalidInput as error:
            raise StoreMisused(f"{error}; raise it first: nothing is changed") from error

    def _pause(self, patience_s: float) -> None:
        until = time.monotonic() + patience_s
        store = RedisStore(self._client, self._namespace, sharding=Sharding({self._queue: self._was}))
        while leased := {shard: count for shard in self._shards if (count := self._close_one(shard, ""))}:
            if time.monotonic() >= until:
                held = sum(leased.values())
                self._give_up(f"{held} tasks of {self._queue} are leased: let them settle, or give a longer --wait")
            self._tell(f"paused; waiting for {sum(leased.values())} leases to end")
            for shard in leased:
                store.sweep(shard, retention_ms=FOREVER_MS)  # takes back those that have lapsed
            time.sleep(LOOK_S)

    def _close(self) -> None:
        if any(self._close_one(shard, self._closed) for shard in self._shards):
            self._give_up(f"somebody resumed {self._queue} meanwhile")

    def _close_one(self, shard: Shard, value: str) -> int:
        """How many leases there are; with none the shard is closed."""
        told = self._told(shard) or str(self._was)
        leased, fence, paused, claimed_at = self._run("close", shard, (), (value,), count=told)[2:]
        self._fence = max(self._fence, fence)
        self._paused = self._paused or bool(paused)
        self._claimed_at = max(self._claimed_at, claimed_at)
        return int(leased)

    def _give_up(self, why: str) -> NoReturn:
        """Open the shards as they were, unless tasks have moved already."""
        if self._has_moved():
            raise StoreMisused(f"{why}; {self._queue} stays closed until this is run again")
        self._claimed_at = 0  # their logs are as they were
        for shard in self._shards:
            self._reopen(shard, self._was, self._told(shard) or str(self._was))
        raise StoreMisused(f"{why}; nothing is changed")

    def _reopen(self, shard: Shard, count: int, told: str) -> None:
        """Open a shard; of one beyond the count its meta stays, so that whoever still counts on it is refused."""
        settings = self._settings()._replace(paused=self._paused and shard.number < count)
        fields = [part for pair in as_fields(settings).items() for part in pair]
        self._run("reopen", shard, (), (count, self._fence, self._claimed_at, *fields), count=told)

    def _settings(self) -> QueueSettings:
        """How the queue is set, by its first shard, which is there before and after."""
        return settings_in(self._scripts, keys_of(self._namespace, Shard(self._queue)))

    def _has_moved(self) -> bool:
        before = Sharding({self._queue: self._was})
        return any(self._home(item, before) != shard for shard in self._shards for item in self._items(shard))

    def _check(self) -> int:
        """How many tasks there are. Raises StoreMisused where two would meet under one id, or one cannot be read."""
        seen: dict[tuple[Shard, str], int] = {}
        meet: list[str] = []
        try:
            for shard in self._shards:
                for item in self._items(shard):
                    place, it = (self._home(item), item.sid), hash(item.data)
                    if seen.setdefault(place, it) != it:
                        meet.append(item.task.id)
        except UNREADABLE as error:
            self._give_up(f"a record of {self._queue} cannot be read: {error}")
        if meet:
            self._give_up(f"ids that are in several groups would meet in one shard: {', '.join(meet[:SHOWN])}")
        return len(seen)

    def _empty(self, shard: Shard) -> int:
        """Move what belongs elsewhere out of one shard; answers how many."""
        moved = 0
        for items in self._batches(shard):
            going = [item for item in items if self._home(item) != shard]
            if going:
                self._move(shard, going)
                moved += len(going)
                self._tell(f"{shard}: moved {moved} tasks")
        return moved

    def _move(self, shard: Shard, items: Sequence[Item]) -> None:
        whens = self._whens(shard, items)
        by_home: dict[Shard, list[int]] = {}
        for index, item in enumerate(items):
            by_home.setdefault(self._home(item), []).append(index)
        for home, chosen in by_home.items():
            arguments = [part for i in chosen for part in (items[i].sid, whens[i], items[i].data)]
            self._run("put", home, _tenants([items[i] for i in chosen]), arguments)
        self._run("drop", shard, _tenants(items), [item.sid for item in items])

    def _whens(self, shard: Shard, items: Sequence[Item]) -> list[int]:
        """When each is due, or ended."""
        keys, sids = keys_of(self._namespace, shard), [item.sid for item in items]
        done, dead = self._scripts.read(lambda p: p.zmscore(keys.done, sids), lambda p: p.zmscore(keys.dead, sids))
        return [
            item.task.due_at if item.task.status is Status.SCHEDULED else int(ended or died or 0)
            for item, ended, died in zip(items, done, dead, strict=True)
        ]

    def _items(self, shard: Shard) -> Iterator[Item]:
        return (item for batch in self._batches(shard) for item in batch)

    def _batches(self, shard: Shard) -> Iterator[list[Item]]:
        tasks, cursor = keys_of(self._namespace, shard).tasks, 0
        while True:
            found: Any
            cursor, found = self._scripts.call(partial(self._client.hscan, tasks, cursor, count=BATCH), again=True)
            yield [Item(sid.decode(), data, unpack(self._queue, sid.decode(), data)) for sid, data in found.items()]
            if not cursor:
                return

    def _home(self, item: Item, sharding: Sharding | None = None) -> Shard:
        return (sharding or self._future).of(self._queue, item.task.id, item.task.group)

    def _put_on_record(self) -> None:
        key = shards_key(self._namespace)

        def send() -> None:
            old = self._on_record()
            with node_of(self._client, key).pipeline(transaction=True) as pipe:
                if old:
                    pipe.srem(key, *old)
                pipe.sadd(key, *(f"{shard}/{self._to}" for shard in self._future.every(self._queue)))
                pipe.execute()

        self._scripts.call(send, again=True)

    def _on_record(self) -> list[str]:
        members: Any = self._scripts.call(lambda: self._client.smembers(shards_key(self._namespace)), again=True)
        return [name for member in members if (name := member.decode()).startswith(f"{self._queue}/")]

    def _told(self, shard: Shard) -> str:
        meta = keys_of(self._namespace, shard).meta
        told: Any = self._scripts.call(lambda: self._client.hget(meta, "shards"), again=True)
        return told.decode() if told else ""

    def _run(
        self, verb: str, shard: Shard, tenants: Sequence[str], arguments: Sequence[Any], *, count: str = ""
    ) -> Any:
        keys, count = keys_of(self._namespace, shard), count or self._closed
        answer = self._scripts.run(verb, keys, tenants, arguments, count=count, again=True)
        if answer == RESHARDED:
            raise StoreMisused(f"another reshard of {self._queue} has begun: this one ends")
        return answer


def _tenants(items: Sequence[Item]) -> list[str]:
    return list({item.task.tenant: None for item in items})
