"""Whose turn it is: where each tenant with scheduled tasks stands, and what it has due, within one batch.

A tenant is among the `heads`, by its earliest due time; in the `ring`, by its turn, once that has come; or `parked`,
by its earliest due time, while it runs as many tasks as it may. Keys are `<place> NUL <shard> NUL number, tenant`;
those of a tenant's tasks `mine NUL <shard> NUL <tenant> NUL when, stored id`; what is known of it is under `tenant`.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from struct import Struct
from typing import NamedTuple

from duecourse.adapters.keyvalue.lines import FOREVER, Line
from duecourse.adapters.keyvalue.map import Batch

NOWHERE, HEADS, RING, PARKED = range(4)
NAMES = {HEADS: b"heads", RING: b"ring", PARKED: b"parked"}
STANDING = Struct(">QQBQ")
NUMBERS = Struct(">5Q")
NOTICE = 100
"""How many tenants join the ring at a time."""


class Standing(NamedTuple):
    """What is known of a tenant: how many of its tasks are leased, before when none is due, and its place."""

    running: int = 0
    floor: int = FOREVER
    place: int = NOWHERE
    at: int = 0


class Turns:
    """The tenants of one shard at one instant; where they stand is true after `settle`."""

    def __init__(self, batch: Batch, shard: bytes, now: int) -> None:
        self._batch, self._shard, self._now = batch, shard, now
        stored = batch.get(self._start(b"turns"))
        self._last: int
        self.ring_size: int
        *floors, self._last, self.ring_size = NUMBERS.unpack(stored) if stored else (FOREVER, FOREVER, FOREVER, 0, 0)
        self._lines = {
            place: Line(batch, self._start(name), floor)
            for (place, name), floor in zip(NAMES.items(), floors, strict=True)
        }
        self._known: dict[str, Standing] = {}
        self._mine: dict[str, Line] = {}
        self._stale: dict[str, None] = {}

    def put(self, at: int, sid: str) -> None:
        """Let a task be due."""
        tenant = _tenant(sid)
        self._tasks(tenant).put(at, sid)
        self._stale[tenant] = None

    def delete(self, at: int, sid: str) -> None:
        """Take a task from what is due."""
        tenant = _tenant(sid)
        self._tasks(tenant).delete(at, sid)
        self._stale[tenant] = None

    def count_running(self, sid: str, by: int) -> int:
        """Count a lease of a task's tenant that began or ended; answers how many there are."""
        tenant = _tenant(sid)
        standing = self._of(tenant)
        self._known[tenant] = standing._replace(running=standing.running + by)
        self._stale[tenant] = None
        return standing.running + by

    def running(self, tenant: str) -> int:
        """How many of a tenant's tasks are leased."""
        return self._of(tenant).running

    def notice(self) -> None:
        """Let tenants whose head has come due join the ring's end."""
        for at, tenant in list(islice(self._lines[HEADS].until(self._now), NOTICE)):
            self._lines[HEADS].delete(at, tenant)
            self._stand(tenant, RING, self._next_turn())

    def front(self, most: int) -> list[str]:
        """The tenants in the ring whose turn is next."""
        return [tenant for _, tenant in islice(self._lines[RING].until(FOREVER), most)]

    def ripe(self, tenant: str, most: int) -> list[str]:
        """The tenant's stored ids that are due, earliest first."""
        return [sid for _, sid in islice(self._tasks(tenant).until(self._now), most)]

    def first(self, sid: str) -> tuple[int, str] | None:
        """What a task's tenant has due first, and when."""
        return self._tasks(_tenant(sid)).first()

    def coming(self, until: int) -> Iterator[str]:
        """The stored ids that come due up to an instant, of the tenants that may run more, earliest tenant first."""
        for _, tenant in self._lines[HEADS].until(until):
            yield from (sid for _, sid in self._tasks(tenant).until(until))

    def move_on(self, served: Iterable[str], barred: Iterable[str]) -> None:
        """Where tenants stand after their turn: with more due at the ring's end, `barred` from more parked."""
        heads = {tenant: self._tasks(tenant).first() for tenant in served}
        barred = set(barred)
        for tenant, head in heads.items():
            self._leave(tenant)
            if head and head[0] <= self._now and tenant not in barred:
                self._stand(tenant, RING, self._next_turn())
            elif head:
                self._stand(tenant, HEADS if head[0] > self._now else PARKED, head[0])
            self._stale.pop(tenant, None)

    def wake(self, tenant: str) -> bool:
        """Let a parked tenant be claimed from again; False where it is not parked."""
        standing = self._of(tenant)
        if standing.place != PARKED:
            return False
        self._leave(tenant)
        self._stand(tenant, HEADS, standing.at)
        return True

    def wake_all(self) -> bool:
        """Let all that are parked be claimed from again; False where none is."""
        parked = list(self._lines[PARKED].until(FOREVER))
        for _, tenant in parked:
            self.wake(tenant)
        return bool(parked)

    def has_parked(self) -> bool:
        """Whether a tenant waits for a place of its own."""
        return self._lines[PARKED].first() is not None

    def waiting(self) -> int:
        """How many tenants have something due that they may run."""
        return self.ring_size + sum(1 for _ in self._lines[HEADS].until(self._now))

    def head(self) -> int:
        """The earliest instant at which a tenant that is not parked has something due, 0 for none."""
        self.settle()
        front = self._lines[RING].first()
        if front:  # after a step of the clock what was ripe may not be
            self._stale[front[1]] = None
            self.settle()
            front = self._lines[RING].first()
        first = self._lines[HEADS].first()
        return self._now if front else max(1, first[0]) if first else 0

    def settle(self) -> None:
        """Let tenants whose tasks have changed stand where they belong; all are looked up before any is written."""
        heads = {tenant: self._tasks(tenant).first() for tenant in self._stale}
        self._stale.clear()
        for tenant, head in heads.items():
            standing = self._of(tenant)
            if standing.place == RING and head and head[0] <= self._now:
                continue
            self._leave(tenant)
            if head:
                self._stand(tenant, PARKED if standing.place == PARKED else HEADS, head[0])

    def save(self) -> None:
        """Keep what is known of the tenants that were looked at, and forget those that have nothing."""
        for tenant, standing in self._known.items():
            kept = standing._replace(floor=self._tasks(tenant).floor)
            key = self._start(b"tenant") + tenant.encode()
            if kept.running or kept.place:
                self._batch.put(key, STANDING.pack(*kept))
            else:
                self._batch.delete(key)
        floors = (line.floor for line in self._lines.values())
        self._batch.put(self._start(b"turns"), NUMBERS.pack(*floors, self._last, self.ring_size))

    def _stand(self, tenant: str, place: int, at: int) -> None:
        self._lines[place].put(at, tenant)
        self.ring_size += place == RING
        self._known[tenant] = self._of(tenant)._replace(place=place, at=at)

    def _leave(self, tenant: str) -> None:
        standing = self._of(tenant)
        if standing.place:
            self._lines[standing.place].delete(standing.at, tenant)
            self.ring_size -= standing.place == RING
            self._known[tenant] = standing._replace(place=NOWHERE, at=0)

    def _next_turn(self) -> int:
        self._last += 1
        return self._last

    def _of(self, tenant: str) -> Standing:
        if tenant not in self._known:
            stored = self._batch.get(self._start(b"tenant") + tenant.encode())
            self._known[tenant] = Standing(*STANDING.unpack(stored)) if stored else Standing()
        return self._known[tenant]

    def _tasks(self, tenant: str) -> Line:
        if tenant not in self._mine:
            start = self._start(b"mine") + tenant.encode() + b"\0"
            self._mine[tenant] = Line(self._batch, start, self._of(tenant).floor)
        return self._mine[tenant]

    def _start(self, part: bytes) -> bytes:
        return part + b"\0" + self._shard + b"\0"


def _tenant(sid: str) -> str:
    return sid.partition("/")[0]
