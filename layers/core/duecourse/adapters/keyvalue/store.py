"""The ledger on an ordered map: every verb is one batch, under one lock."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from duecourse.adapters.keyvalue import claims, verbs
from duecourse.adapters.keyvalue.clock import SystemClock
from duecourse.adapters.keyvalue.indexes import DUE, NAMES
from duecourse.adapters.keyvalue.ledger import Ledger
from duecourse.adapters.keyvalue.listeners import Heard
from duecourse.adapters.keyvalue.map import MemoryMap, OrderedMap
from duecourse.adapters.keyvalue.repeats import KeyValueRepeats
from duecourse.adapters.keyvalue.steps import Steps
from duecourse.adapters.keyvalue.warmth import KeyValueWarmth
from duecourse.adapters.pages import Found, paged
from duecourse.adapters.record import stored_id
from duecourse.domain.history import Door
from duecourse.domain.lateness import added_up
from duecourse.domain.outcomes import Settlement
from duecourse.domain.pages import Page, Place, Wanted
from duecourse.domain.queues import HeldBack, QueueChanges, QueueSettings, Stats, changed, check_split
from duecourse.domain.shards import Sharding, scatter
from duecourse.domain.task import DEFAULT_TENANT, NewTask, Shard, Task
from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ports.clock import Clock
from duecourse.ports.store import (
    MAX_ADD,
    MAX_CLAIM,
    NO_DELIVERIES,
    Added,
    Alone,
    Begun,
    Claim,
    Deliveries,
    Lease,
    Move,
    Reply,
    Settled,
    check_count,
)
from duecourse.ports.upkeep import Swept, answered


class KeyValueStore:
    """The ledger (ports.store.Store) on an ordered map of one process; `deaths` whether each death is told of."""

    def __init__(
        self,
        below: OrderedMap,
        clock: Clock | None = None,
        sharding: Sharding | None = None,
        *,
        deaths: bool = False,
    ) -> None:
        """Raises StoreMisused where a queue has another number of shards in the map, which is closed then."""
        self._sharding = sharding or Sharding()
        self._clock = clock or SystemClock()
        self._steps = Steps(below, self._clock, self._sharding, deaths=deaths)

    def repeats(self) -> KeyValueRepeats:
        """What is remembered of requests, in the same map."""
        return KeyValueRepeats(self._steps.batch)

    def warmth(self) -> KeyValueWarmth:
        """What comes due soon, and which functions were invoked, in the same map."""
        return KeyValueWarmth(self._steps)

    def ping(self) -> None:
        """It is here."""

    def now(self) -> int:
        """This machine's time in epoch milliseconds."""
        return self._clock.now()

    def shards(self) -> list[Shard]:
        """Every shard that was ever added to, or whose queue was ever set."""
        return self._steps.shards()

    def shard_of(self, queue: str, id: str, group: str = "") -> Shard:
        """The shard that a task of this group, or of none, is in."""
        return self._sharding.of(queue, id, group)

    def add(self, tasks: Sequence[NewTask], *, echo: bool = False, alone: Alone | None = None) -> list[Added]:
        """Schedule tasks, at most MAX_ADD to a shard, each as its `on_duplicate` says where its id stands already."""
        shards = [self._sharding.of(task.queue, task.id, task.group) for task in tasks]
        check_count(max(Counter(shards).values(), default=0), MAX_ADD)
        if alone and tasks:
            return self._add_to(shards[0], tasks, echo, alone)
        return scatter(shards, lambda shard, chosen: self._add_to(shard, [tasks[i] for i in chosen], echo))

    def _add_to(self, shard: Shard, tasks: Sequence[NewTask], echo: bool, alone: Alone | None = None) -> list[Added]:
        with self._steps.change(shard) as ledger:
            if alone and verbs.is_taken(ledger, tasks[0].tenant, alone):
                return []
            ledger.register()
            return [self._add(ledger, task, echo) for task in tasks]

    def _add(self, ledger: Ledger, task: NewTask, echo: bool) -> Added:
        reply, held = verbs.add(ledger, task)
        return Added(task.id, reply, held.task if echo and held else None)

    def get(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task | None:
        """One task as it stands."""
        return self._steps.get(queue, id, tenant)

    def group(self, queue: str, group: str, tenant: str = DEFAULT_TENANT) -> list[Task]:
        """The tasks of a group, by id."""
        with self._steps.look(self._sharding.of(queue, "", group)) as ledger:
            return ledger.members(tenant, group)

    def claim(
        self,
        shard: Shard,
        limit: int,
        *,
        lease_ms: int,
        max_bytes: int = 4_000_000,
        door: Door = Door.TAKE,
        deliveries: Deliveries = NO_DELIVERIES,
    ) -> Claim:
        """Lease due tasks, after lapsed leases have been taken back."""
        check_count(limit, MAX_CLAIM, least=1)
        with self._steps.change(shard) as ledger:
            return claims.claim(ledger, limit, max_bytes, _terms(ledger, lease_ms, door), deliveries)

    def take(self, queue: str, id: str, tenant: str = DEFAULT_TENANT, *, lease_ms: int, group: str = "") -> Task | None:
        """Lease one scheduled task now, due or not."""
        with self._steps.change(self._sharding.of(queue, id, group)) as ledger:
            return claims.take(ledger, stored_id(tenant, id), _terms(ledger, lease_ms, Door.TAKE))

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        """End leases, at most MAX_CLAIM. The same token and ending again gets the same answer."""
        check_count(len(settlements), MAX_CLAIM)
        with self._steps.change(shard) as ledger:
            return [verbs.settle(ledger, settlement) for settlement in settlements]

    def begin(self, shard: Shard, deliveries: Sequence[Lease], lease_ms: int, nonces: Sequence[bytes]) -> list[Begun]:
        """Begin tasks that were handed over: each delivery becomes the lease of its run."""
        check_count(len(deliveries), MAX_CLAIM)
        with self._steps.change(shard) as ledger:
            pairs = zip(deliveries, nonces, strict=True)
            return [verbs.begin(ledger, delivery, lease_ms, nonce) for delivery, nonce in pairs]

    def extend(self, shard: Shard, leases: Sequence[Lease], lease_ms: int, *, at_least: bool = False) -> list[int]:
        """Let leases end `lease_ms` from now; answers each one's new end, 0 where it is lost."""
        with self._steps.change(shard) as ledger:
            return [verbs.extend(ledger, lease, lease_ms, at_least) for lease in leases]

    def save(self, shard: Shard, lease: Lease, state: str) -> bool:
        """Keep `state` (JSON text) for the task's next run; False where the lease is lost."""
        with self._steps.change(shard) as ledger:
            return verbs.save(ledger, lease, state)

    def move(self, queue: str, moves: Sequence[Move], tenant: str = DEFAULT_TENANT, *, group: str = "") -> list[Reply]:
        """Give tasks new due times, those of one shard in one step."""
        ids = [asked.id for asked in moves]
        return self._steps.change_wherever(
            queue, ids, tenant, group, lambda ledger, i: verbs.move(ledger, tenant, moves[i])
        )

    def cancel(
        self,
        queue: str,
        ids: Sequence[str],
        *,
        force: bool = False,
        tenant: str = DEFAULT_TENANT,
        group: str = "",
        by: str = "",
    ) -> list[Reply]:
        """Cancel scheduled tasks and delete dead ones, those of one shard in one step."""
        sids = [stored_id(tenant, one) for one in ids]
        return self._steps.change_wherever(
            queue, ids, tenant, group, lambda ledger, i: verbs.cancel(ledger, sids[i], force, by)
        )

    def replay(
        self,
        queue: str,
        ids: Sequence[str],
        tenant: str = DEFAULT_TENANT,
        *,
        delays_ms: Sequence[int] = (),
        deadlines_ms: Sequence[int] = (),
        by: str = "",
    ) -> list[Reply]:
        """Schedule dead tasks again: a fresh set of attempts, the same generation, a deadline where one is given."""
        none = [0] * len(ids)
        each = [*zip((stored_id(tenant, id) for id in ids), delays_ms or none, deadlines_ms or none, strict=True)]
        return self._steps.change_wherever(queue, ids, tenant, "", lambda ledger, i: verbs.replay(ledger, *each[i], by))

    def page(self, queue: str, wanted: Wanted, after: Place | None, limit: int, tenant: str = DEFAULT_TENANT) -> Page:
        """At most `limit` of a queue's tasks in their order, those that follow `after`."""
        shards = [self._sharding.of(queue, "", wanted.group)] if wanted.group else self._sharding.every(queue)

        return paged(wanted, after, limit, lambda *asked: [self._found(one, wanted, tenant, *asked) for one in shards])

    def _found(self, shard: Shard, wanted: Wanted, tenant: str, place: Place, limit: int) -> Found:
        with self._steps.look(shard) as ledger:
            return verbs.look(ledger, wanted, place, limit, tenant)

    def configure(self, queue: str, changes: QueueChanges, *, default: bool = False) -> None:
        """Set a queue anew, a step a shard."""
        check_split(changed(QueueSettings(), changes), self._sharding.count(queue))
        for shard in self._sharding.every(queue):
            with self._steps.change(shard) as ledger:
                ledger.register()
                ledger.configure(
                    changed(ledger.limits.whole, _unset(ledger.limits.whole, changes) if default else changes)
                )

    def settings_of(self, queues: Sequence[str]) -> list[QueueSettings]:
        """How each of some queues is set, as a whole."""
        return [self.settings(queue) for queue in queues]

    def settings(self, queue: str) -> QueueSettings:
        """How a queue is set, as a whole."""
        with self._steps.look(Shard(queue)) as ledger:
            return ledger.limits.whole

    def sweep(self, shard: Shard, *, retention_ms: int, dead_retention_ms: int | None = None) -> Swept:
        """Take back lapsed leases, forget what finished over `retention_ms` ago, hang the bell: a bounded step."""
        with self._steps.change(shard) as ledger:
            reclaimed, died = verbs.reclaim(ledger)
            pruned, more = verbs.prune(ledger, retention_ms, dead_retention_ms)
            return Swept(reclaimed, died, pruned, reclaimed == verbs.BOUND or more, ledger.hang(), ledger.now)

    def sweep_all(
        self, shards: Sequence[Shard], *, retention_ms: int, dead_retention_ms: int | None = None
    ) -> list[Swept | StoreUnavailable | StoreMisused]:
        """Sweep many shards, a bounded step each."""
        sweep = partial(self.sweep, retention_ms=retention_ms, dead_retention_ms=dead_retention_ms)
        return [answered(partial(sweep, shard)) for shard in shards]

    def stats_of(self, shards: Sequence[Shard]) -> list[Stats | StoreUnavailable | StoreMisused]:
        """Many shards in numbers, or why one's are not known."""
        return [answered(partial(self.stats, shard)) for shard in shards]

    def stats(self, shard: Shard) -> Stats:
        """The shard in numbers."""
        with self._steps.look(shard) as ledger:
            scheduled, leased, done, dead = map(ledger.indexes.size, NAMES)
            firsts, settings = (ledger.indexes.first(DUE), ledger.handovers.oldest()), ledger.limits.settings
            oldest = min(filter(None, firsts), default=0)
            return Stats(scheduled, leased, done, dead, oldest, ledger.meta.bell_at, settings, ledger.now)

    def lateness_of(self, shards: Sequence[Shard]) -> list[dict[int, int]]:
        """How late the tasks of the last hour were when they were claimed, a shard each."""
        return [self._lateness(shard) for shard in shards]

    def _lateness(self, shard: Shard) -> dict[int, int]:
        with self._steps.look(shard) as ledger:
            return added_up(ledger.limits.lateness())

    def held_back(self, shard: Shard, tenant: str = DEFAULT_TENANT, task: Task | None = None) -> HeldBack:
        """What holds a tenant's due tasks in a shard, or this one of them, back from being claimed now."""
        with self._steps.look(shard) as ledger:
            return ledger.hold(tenant, task)

    def bell_at(self, shard: Shard) -> int:
        """When a shard's bell goes, or went; 0 where none hangs."""
        with self._steps.look(shard) as ledger:
            return ledger.meta.bell_at

    def listen(self, heard: Heard) -> Callable[[], None]:
        """Have `heard` told of each bell that is hung elsewhere, in order, until the answer is called."""
        return self._steps.listeners.add(heard)

    def close(self) -> None:
        """Give up the map; every verb on tasks raises StoreUnavailable afterwards where that was a folder."""
        self._steps.close()


class MemoryStore(KeyValueStore):
    """The ledger of one process, gone with it; for tests."""

    def __init__(self, clock: Clock | None = None, sharding: Sharding | None = None, *, deaths: bool = False) -> None:
        super().__init__(MemoryMap(), clock, sharding, deaths=deaths)


def _terms(ledger: Ledger, lease_ms: int, door: Door) -> claims.Terms:
    return claims.Terms(ledger.limits.settings.lease_ms or lease_ms, door)


def _unset(settings: QueueSettings, changes: QueueChanges) -> QueueChanges:
    """Those changes of what is not set."""
    found = {name: value for name, value in changes.items() if getattr(settings, name) is None}
    return cast(QueueChanges, found)
