"""Registry of the shards that exist, and the error where a queue has another number than the settings say."""

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from duecourse.errors import QuotaExceeded, StoreMisused, StoreUnavailable, WrongShards
from duecourse.ledger import keys
from duecourse.ledger.connect import execute, node_of, primaries_of
from duecourse.ledger.operation_types import FORGET_MS
from duecourse.ledger.script_calls import Scripts
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import DEFAULT_QUEUE, DEFAULT_TENANT, Shard

log = logging.getLogger("duecourse.ledger")

KEPT_S = 60.0
"""Time for which a process takes for granted that a shard is registered: a failover may lose that."""
GRACE_S = 5.0
"""Time until a shard is looked up again after the registry did not answer."""
TRUSTED_S = 1.0
"""Least time for which one reading of the registry serves every queue."""
TRUSTED_TIMES = 10
"""The same time as a multiple of what the reading took: new queues spend a tenth of their time on long records."""
EVERYBODYS = frozenset({DEFAULT_QUEUE, "reminders"})
"""Queues that no tenant makes for itself."""
STEP = 1_000
"""Number of keys that one step of the search for lost shards looks at, on each node."""
SEARCH_S = 30.0
"""Least time between two steps of that search; less than a tick's minute."""
MOST_ADMITTED = 10_000
"""Maximum number of uses of queues that a process remembers."""


class ShardRegistry:
    """Registry of shards: the set `<namespace>:shards` with members `<queue>/<number>/<count>`.

    `wait` is the number of replicas that must know of a member. Each tenant may make `max_queues`, 0 for any number.
    """

    def __init__(self, scripts: Scripts, namespace: str, sharding: Sharding, wait: int, max_queues: int = 0) -> None:
        self._scripts = scripts
        self._namespace = namespace
        self._sharding = sharding
        self._key, self._leaving = keys.shards_key(namespace), keys.leaving_key(namespace)
        self._wait = wait
        self.max_queues = max_queues
        self._known: dict[str, int] = {}
        self._counts: dict[str, set[int]] = {}
        self._seen: dict[Shard, tuple[float, int]] = {}
        self._met: dict[Shard, float] = {}
        self._admitted: dict[tuple[str, str], float] = {}
        self._trusted_until = -math.inf
        self._members: list[tuple[Shard, int]] = []
        self._cursors: dict[str, int] = {}
        self._searched_at = -SEARCH_S

    def members(self) -> list[tuple[Shard, int]]:
        """Every registered shard, with the number of its queue's shards, in order.

        In a cluster those that were read last, while the registry's node is away. Raises StoreUnavailable.
        """
        try:
            self._members = sorted(keys.parse_shards(self._scripts.command("SMEMBERS", self._key)))
        except StoreUnavailable:
            if not (self._scripts.in_cluster and self._members):
                raise
            log.warning("the record of shards is away: the %d that it had last are looked at", len(self._members))
        return self._members

    def check(self, queue: str) -> int:
        """Number of a queue's shards by the settings. Raises WrongShards where the record, read once, has another."""
        if queue in self._known:
            return self._known[queue]
        expected = self._sharding.count(queue)
        is_other = bool(self._counts.get(queue, set()) - {expected})
        if is_other or time.monotonic() > self._trusted_until:
            try:
                self._read()
            except StoreUnavailable:
                if not self._scripts.in_cluster:
                    raise
                return expected  # the record's node is away: the shard's own says the same, and rejects another number
        for count in self._counts.get(queue, ()):
            self._compare(queue, str(count))
        self._known[queue] = expected
        return expected

    def compare(self, queue: str, count: bytes | None) -> None:
        """Return if a shard's meta has the right number of shards, or none. Raises as `refuse`."""
        if count:
            self._compare(queue, count.decode())

    def refuse(self, shard: Shard) -> NoReturn:
        """Raise StoreUnavailable while the queue's shards are changed, WrongShards where they are another number."""
        self.compare(shard.queue, self._count_in(shard))
        raise StoreUnavailable(f"The shards of queue {shard.queue} have just been changed: try again")

    def register(self, shard: Shard, tenant: str = DEFAULT_TENANT) -> None:
        """Register a shard, also on the replicas that must know.

        Raises WrongShards where its queue has another number of shards, OtherVersion for a ledger of another version,
        and StoreUnavailable where too few replicas know. Raises QuotaExceeded where the queue is new and the tenant has
        made as many as it may.
        """
        self._register(shard, self._wait, tenant)
        self._see(shard)

    def admit(self, shard: Shard, tenant: str) -> None:
        """Register a shard for a tenant whose queues are counted, looked up now and then. Raises as `register`.

        A queue counts for each tenant that uses it: a count of those it made would tell it of others.
        """
        if not self.max_queues or tenant == DEFAULT_TENANT or shard.queue in EVERYBODYS:
            return
        use, now = (shard.queue, tenant), time.monotonic()
        if self._is_sure(shard) and self._admitted.get(use, 0.0) > now:
            return
        self.register(shard, tenant)
        if len(self._admitted) >= MOST_ADMITTED:
            self._admitted.clear()
        self._admitted[use] = now + KEPT_S

    def keep(self, shard: Shard) -> None:
        """Register a shard that will have tasks, if it is missing; looked up now and then.

        Raises as `register`. While the record does not answer, a shard that this process knows of is taken for granted.
        """
        if self._is_sure(shard):
            return
        try:
            # Presence says nothing of replicas: where they count, the shard is written once more.
            if self._wait or not self._is_there(shard):
                self._register(shard, self._wait)
            self._see(shard)
        except StoreUnavailable:
            if self._wait and shard not in self._seen:
                raise
            self._see(shard, for_s=GRACE_S)

    def meet(self, shard: Shard, *, beside: bool = False) -> None:
        """Register a shard in which tasks were found, if it is missing; an absent record is left alone.

        In a cluster `beside` does not wait for that: the record may be on another node, which is away.
        """
        if self._is_sure(shard) or self._met.get(shard, 0) > time.monotonic():
            return
        self._met[shard] = time.monotonic() + GRACE_S
        if beside and self._scripts.in_cluster:
            threading.Thread(target=self._restore, args=(shard,), name="record", daemon=True).start()
        else:
            self._restore(shard)

    def _restore(self, shard: Shard) -> None:
        with suppress(StoreUnavailable, StoreMisused):
            if not self._is_there(shard):
                self._register(shard, 0)
            self._met[shard] = time.monotonic() + KEPT_S

    def forget(self, shard: Shard, leave: Callable[[], bool]) -> None:
        """Take a shard off the record once `leave` has made it reject adds until it is there again.

        The shard is marked first. A process that registers it meanwhile removes the mark, and the shard stays.
        """
        member = self._member(shard)
        mark = f"{member}#{secrets.token_hex(8)}"  # its own: another who forgets it at once may mark it again
        self._scripts.command("SADD", self._leaving, mark)
        if leave():
            sets = (self._key, self._leaving)
            self._scripts.evaluate("unregister", (len(sets), (*sets, self._scripts.clock(), member, mark)))
        else:
            self._scripts.command("SREM", self._leaving, mark)

    def find_lost(self) -> None:
        """Make a step of the search for shards with tasks that are not registered, if one is due, and register them.

        A failover may lose the record, which is on a node of its own. The search goes over all keys of each node, and
        then from the first again. A node that does not answer is left for another time.
        """
        if time.monotonic() - self._searched_at < SEARCH_S:
            return
        self._searched_at = time.monotonic()
        for name, node in primaries_of(self._scripts.client).items():
            with suppress(StoreUnavailable, StoreMisused):
                for shard in self._step(name, node):
                    # By the shard's own word: another program's queue of this name has another number of shards.
                    if (self._count_in(shard) or b"1").decode() == str(self._sharding.count(shard.queue)):
                        self.meet(shard)

    def _step(self, name: str, node: Any) -> Iterator[Shard]:
        """Shards of the keys that one step looks at on a node."""
        scan = partial(node.scan, self._cursors.get(name, 0), match=keys.tasks_pattern(self._namespace), count=STEP)
        self._cursors[name], found = self._scripts.call(scan)
        return filter(None, (keys.shard_of_tasks_key(self._namespace, key.decode()) for key in found))

    def _register(self, shard: Shard, replicas: int, tenant: str = DEFAULT_TENANT) -> None:
        makers = keys.makers_key(self._namespace), keys.made_key(self._namespace)
        sets = (self._key, self._leaving, keys.ledger_key(self._namespace), *makers)
        every = (
            *sets,
            self._scripts.clock(),
            shard.queue,
            shard.number,
            self._sharding.count(shard.queue),
            int(bool(replicas)),
        )
        may_make_any = tenant == DEFAULT_TENANT or shard.queue in EVERYBODYS
        maker = (tenant, 0 if may_make_any else self.max_queues)
        while not (answer := int(self._scripts.evaluate("register", (len(sets), (*every, *maker)), replicas=replicas))):
            if not self._make_room(tenant):
                raise QuotaExceeded("tenant_max_queues", FORGET_MS)
        if answer > 0:
            self._compare(shard.queue, str(answer))

    def _make_room(self, tenant: str) -> bool:
        """Let queues count no more that a tenant has not used for FORGET_MS, with no task pending; False for none.

        Others may use them still: so long, the queues themselves are not forgotten.
        """
        makers, made = keys.makers_key(self._namespace), keys.made_key(self._namespace)
        found = self._scripts.command("ZRANGEBYLEX", made, f"[{tenant}/", f"({tenant}0")
        entries = [entry.decode() for entry in found]
        fields = ["/".join(entry.split("/")[:2]) for entry in entries]
        used = self._scripts.command("HMGET", makers, *fields) if fields else []
        now, is_there_room = self._now(), False
        for entry, field, at in zip(entries, fields, used, strict=True):
            if int(at or 0) <= now - FORGET_MS and not self._has_pending(field.split("/")[1], tenant):
                self._scripts.command("ZREM", made, entry)
                self._scripts.command("HDEL", makers, field)
                is_there_room = True
        return is_there_room

    def _now(self) -> int:
        if self._scripts.travel:
            return self._scripts.travel.now()
        node = node_of(self._scripts.client, self._key)
        seconds, micros = self._scripts.call(lambda: execute(node, "TIME"))
        return int(seconds) * 1000 + int(micros) // 1000

    def _has_pending(self, queue: str, tenant: str) -> bool:
        """True if a tenant has a task in a queue that is scheduled or leased."""
        shards = [keys.keys_of(self._namespace, shard) for shard in self._sharding.every(queue)]
        reads = [
            read for one in shards for read in (("ZCARD", one.due(tenant)), ("HGET", one.meta, f"running:{tenant}"))
        ]
        return any(int(found or 0) > 0 for found in self._scripts.read(*reads))

    def _member(self, shard: Shard) -> str:
        return f"{shard}/{self._sharding.count(shard.queue)}"

    def _is_there(self, shard: Shard) -> bool:
        return bool(self._scripts.command("SISMEMBER", self._key, self._member(shard)))

    def _is_sure(self, shard: Shard) -> bool:
        until, outages = self._seen.get(shard, (0.0, 0))
        return until > time.monotonic() and outages == self._scripts.outages

    def _see(self, shard: Shard, for_s: float = KEPT_S) -> None:
        self._seen[shard] = (time.monotonic() + for_s, self._scripts.outages)

    def _count_in(self, shard: Shard) -> bytes | None:
        """Number of the queue's shards in a shard's meta, or the unfinished change of it."""
        count: bytes | None = self._scripts.command("HGET", keys.keys_of(self._namespace, shard).meta, "shards")
        return count

    def _compare(self, queue: str, found: str) -> None:
        count = str(self._sharding.count(queue))
        if ">" in found:
            changed = found.partition("#")[0].replace(">", " to ")
            raise StoreUnavailable(f"The shards of queue {queue} are being changed, from {changed}")
        if found != count:
            raise WrongShards(
                f"Queue {queue} has {found} registered shards and DUECOURSE_SHARDS says {count}: "
                f"run `duecourse reshard {queue} {count}`, or set it to {found}"
            )

    def _read(self) -> None:
        began = time.monotonic()
        counts: dict[str, set[int]] = {}
        for shard, count in self.members():
            counts.setdefault(shard.queue, set()).add(count)
            if not self._wait:
                self._see(shard)
        now = time.monotonic()
        self._trusted_until = now + max(TRUSTED_S, TRUSTED_TIMES * (now - began))
        self._counts = counts
