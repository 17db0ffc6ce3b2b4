"""The ledger as such (ports.ledger): its time, its shards, one task, the shards in numbers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from duecourse.adapters.redis.adds import Adds
from duecourse.adapters.redis.arguments import Argument, ending
from duecourse.adapters.redis.connect import Client, answering_first, name_of_node, node_of
from duecourse.adapters.redis.keys import Keys, hung_at, keys_of, shards_key
from duecourse.adapters.redis.lines import execute
from duecourse.adapters.redis.queue_settings import FIELDS, settings_of
from duecourse.adapters.redis.record import UNREADABLE, body_field, lease_end, stored_id, unpack
from duecourse.adapters.redis.scripts import Request
from duecourse.adapters.redis.verbs import Question, Verbs, in_steps
from duecourse.domain.queues import Stats, share
from duecourse.domain.schedule import TENANT as SCHEDULES
from duecourse.domain.shards import Sharding
from duecourse.domain.task import DEFAULT_TENANT, Shard, Task
from duecourse.errors import StoreUnavailable, TaskDamaged
from duecourse.ports.clock import Clock
from duecourse.ports.ledger import Away


class Found(NamedTuple):
    """Record of a task, the end of its lease if it has one, and its payload where that is apart."""

    data: bytes
    lease_expires_at: float | None
    payload: bytes | None = None


class RedisLedger:
    """Common part of the ledger's parts; its arguments are those of RedisStore."""

    def __init__(
        self,
        client: Client,
        namespace: str = "duecourse",
        *,
        sharding: Sharding | None = None,
        travel: Clock | None = None,
        wait: int = 0,
        deaths: bool = False,
        max_queues: int = 0,
        quotas: str | None = None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._sharding = sharding or Sharding()
        self._ending = ending(deaths=deaths)
        self._verbs = Verbs(client, namespace, self._sharding, travel, wait, max_queues)
        self._scripts = self._verbs.scripts
        self._record = self._verbs.record
        self._quotas = quotas
        self._adds = Adds(self._verbs, quotas or "")

    def close(self) -> None:
        """See Store."""
        self._client.close()

    def ping(self) -> None:
        """See Ledger; of a cluster, any primary answers."""
        if not self._scripts.in_cluster:
            self._scripts.call(self._client.ping)
            return
        away: StoreUnavailable | None = None
        for node in answering_first(self._client):
            try:
                self._scripts.call(node.ping, again=False)
            except StoreUnavailable as error:
                away = error
            else:
                return
        raise away or StoreUnavailable("The cluster has no primaries")

    def server_of(self, shard: Shard) -> str:
        """See Ledger."""
        return name_of_node(self._client, keys_of(self._namespace, shard).tasks) if self._scripts.in_cluster else ""

    def now(self) -> int:
        """See Ledger."""
        if self._scripts.travel:
            return self._scripts.travel.now()
        node = node_of(self._client, shards_key(self._namespace))
        seconds, micros = self._scripts.call(lambda: execute(node, "TIME"))
        return int(seconds) * 1000 + int(micros) // 1000

    def shards(self) -> list[Shard]:
        """See Ledger."""
        self._record.find_lost()
        return [shard for shard, _ in self._record.members()]

    def shard_of(self, queue: str, id: str, group: str = "") -> Shard:
        """See Ledger."""
        return self._sharding.of(queue, id, group)

    def get(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task | None:
        """See Ledger. Raises TaskDamaged where the task's record cannot be read."""
        sid = stored_id(tenant, id)
        task = self._whole(*self._find(queue, id, sid)).get(sid)
        if task is None:
            return None
        try:
            return unpack(queue, sid, task.data, lease_end(task.lease_expires_at), task.payload)
        except UNREADABLE as error:
            raise TaskDamaged(f"the record of {sid} cannot be read: {error}") from error

    def _find(self, queue: str, id: str, sid: str) -> tuple[Shard, dict[str, Found]]:
        """Look in the id's shard, then in all others, which takes one more round trip."""
        home = self._sharding.of(queue, id)
        count, *found = self._scripts.read(("HGET", self._verbs.keys(home).meta, "shards"), *self._reads(sid, [home]))
        self._record.compare(queue, count)
        shards, others = [home], [shard for shard in self._sharding.every(queue) if shard != home]
        if found[0] is None and others:
            shards, found = others, self._scripts.read(*self._reads(sid, others))
        rows = zip(shards, found[::2], found[1::2], strict=True)
        return next(((shard, {sid: Found(data, end)}) for shard, data, end in rows if data is not None), (home, {}))

    def _whole(self, shard: Shard, tasks: dict[str, Found]) -> dict[str, Found]:
        """The same tasks by stored id, with their payloads; those with payloads apart as they are by now, if at all.

        A second read could miss the payload of a task that was replaced since the first: a script reads both.
        """
        apart = [sid for sid, one in tasks.items() if body_field(sid, one.data)]
        rows = in_steps(apart, lambda sids: self._verbs.run("show", shard, (), sids))
        whole = tasks | {sid: Found(*row) for sid, row in zip(apart, rows, strict=True)}
        return {sid: one for sid, one in whole.items() if one.data is not None}

    def _reads(self, sid: str, shards: Sequence[Shard]) -> list[Sequence[Argument]]:
        every = map(self._verbs.keys, shards)
        return [command for keys in every for command in (("HGET", keys.tasks, sid), ("ZSCORE", keys.leased, sid))]

    def confirm(self, shard: Shard) -> None:
        """See Ledger: nothing is sent where no replicas count."""
        if self._verbs.wait:
            self._scripts.confirm(self._verbs.keys(shard).meta, self._verbs.wait)

    def stats(self, shard: Shard) -> Stats:
        """See Figures: a round trip, and one more if tenants are in the ring, for their heads."""
        return self._verbs.ask(self._stats(), shard)

    def stats_of(self, shards: Sequence[Shard]) -> list[Stats | Away]:
        """See Figures: a round trip a node, and one more for each shard with tenants in its ring."""
        return self._verbs.ask_all(self._stats(), shards)

    def _stats(self) -> Question[Stats]:
        return Question("stats", self._stats_request, self._read_stats)

    def _stats_request(self, shard: Shard) -> Request:
        keys = self._verbs.keys(shard)
        every = (*keys.fixed, keys.due(SCHEDULES))
        return len(every), (*every, "successors", "bodies", "bell_at", *FIELDS)

    def _read_stats(self, shard: Shard, answer: Any) -> Stats:
        now, tasks, leased, done, dead, head, parked, ring, bell, fields, waiting, schedules, fires = answer
        successors, bodies, travelling, *settings = fields
        scheduled = tasks - int(successors or 0) - int(bodies or 0) - leased - done - dead
        heads = self._heads(self._verbs.keys(shard), ring)
        waits = [waiting] if waiting else []
        oldest = min(map(int, (*head[1:], *parked[1:], *waits, *heads)), default=0)
        part = share(settings_of(settings), shard.number, self._sharding.count(shard.queue))
        travel = self._scripts.travel
        now = travel.now() if travel else now
        hung = hung_at(bell or travelling) or 0
        return Stats(scheduled, leased, done, dead, oldest, hung, part, now, schedules, int(fires or 0))

    def _heads(self, keys: Keys, ring: Sequence[bytes]) -> list[bytes]:
        """Due times of the earliest task of each tenant in the ring."""
        reads = [("ZRANGE", keys.due(tenant.decode()), 0, 0, "WITHSCORES") for tenant in ring]
        return [at for found in (self._scripts.read(*reads) if reads else ()) for at in found[1:]]
