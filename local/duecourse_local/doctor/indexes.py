"""Check of one shard's indexes beside its records, both ways."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import NamedTuple

from duecourse.adapters.redis.keys import Keys
from duecourse.adapters.redis.record import UNREADABLE, unpack
from duecourse.adapters.redis.scan import SUCCESSOR, Item, Scan
from duecourse.adapters.redis.scripts import Scripts
from duecourse.domain.batches import pieces
from duecourse.domain.notification import is_notification
from duecourse.domain.schedule import NEVER
from duecourse.domain.schedule import TENANT as SCHEDULES
from duecourse.domain.task import Shard, Status

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
                items = list(self._as_they_are(self._lacking(items)))
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

    def _lacking(self, items: Sequence[Item]) -> list[Item]:
        """The items of which an entry is absent."""
        absent = {
            entry.sid for entry in self._without_score([entry for item in items for entry in self._entries(item)])
        }
        return [item for item in items if item.sid in absent]

    def _as_they_are(self, items: Sequence[Item]) -> Iterator[Item]:
        """The items that still exist, as they are now."""
        records = self._scripts.command("HMGET", self._keys.tasks, *(item.sid for item in items)) if items else []
        for item, data in zip(items, records, strict=True):
            with suppress(*UNREADABLE):
                if data:
                    body = item.body or None
                    yield item._replace(data=data, task=unpack(item.shard.queue, item.sid, data, body=body))

    def _entries(self, item: Item) -> Iterator[Entry]:
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
        every = zip(self._tenants, pieces(found, 1 + len(places)), strict=True)
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
