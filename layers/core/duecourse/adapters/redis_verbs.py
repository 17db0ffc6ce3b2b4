"""One verb on one shard: its keys, the tenants that are declared, the clock; a shard's first add; tasks looked for."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from duecourse.adapters.record import stored_id
from duecourse.adapters.redis_connect import Client, node_of
from duecourse.adapters.redis_keys import Keys, keys_of, shards_key
from duecourse.adapters.redis_scripts import RESHARDED, UNREGISTERED, Scripts
from duecourse.adapters.redis_shards import ShardsOnRecord
from duecourse.adapters.redis_wire import Argument
from duecourse.domain.shards import Sharding, scatter
from duecourse.domain.task import DEFAULT_TENANT, Shard
from duecourse.ports.clock import Clock
from duecourse.ports.store import Reply

MAX_WANT = 128
"""The most tenants whose keys one claim declares."""

Act = Callable[[Shard, list[int]], list[Reply]]


class Verbs:
    """The scripts on the shards of one namespace."""

    def __init__(self, client: Client, namespace: str, sharding: Sharding, travel: Clock | None) -> None:
        self.scripts = Scripts(client, travel)
        self.record = ShardsOnRecord(self.scripts, namespace, sharding)
        self.sharding = sharding
        self._client = client
        self._namespace = namespace
        self._travelling: set[Shard] = set()
        self._tenants: dict[Shard, tuple[str, ...]] = {}

    def run(
        self,
        verb: str,
        shard: Shard,
        tenants: Sequence[str],
        arguments: Sequence[Argument],
        *,
        again: bool,
        replicas: int = 0,
    ) -> Any:
        """What the verb's script answers; for `again` and `replicas` see Scripts.run."""
        keys, count = self.keys(shard), self.sharding.count(shard.queue)
        if self.scripts.travel and shard not in self._travelling:
            self.scripts.call(lambda: self._client.hset(keys.meta, "clock", "travel"), again=True)
            self._travelling.add(shard)
        answer = self.scripts.run(verb, keys, tenants, arguments, count=count, again=again, replicas=replicas)
        if answer == RESHARDED:
            self.record.refuse(shard)
        return answer

    def add(self, shard: Shard, tenants: Sequence[str], arguments: list[Argument], replicas: int) -> Any:
        """What add.lua answers, once the shard is on record: the first argument tells the script so."""
        answer = self.run("add", shard, tenants, arguments, again=True, replicas=replicas)
        if answer == UNREGISTERED:
            self.record.register(shard)
            arguments[0] = 1
            answer = self.run("add", shard, tenants, arguments, again=True, replicas=replicas)
        return answer

    def wherever(self, queue: str, ids: Sequence[str], tenant: str, group: str, act: Act) -> list[Reply]:
        """What `act` answers for tasks of a group, or each wherever it is: not in its id's shard, it is looked for."""
        replies = scatter([self.sharding.of(queue, id, group) for id in ids], act)
        absent = [index for index, reply in enumerate(replies) if reply is Reply.ABSENT]
        if group or not absent or self.sharding.count(queue) == 1:
            return replies
        found = self._find(queue, {index: stored_id(tenant, ids[index]) for index in absent})
        indexes = list(found)
        again = scatter(list(found.values()), lambda shard, chosen: act(shard, [indexes[i] for i in chosen]))
        for index, reply in zip(indexes, again, strict=True):
            replies[index] = reply
        return replies

    def _find(self, queue: str, sids: dict[int, str]) -> dict[int, Shard]:
        """In which shards these stored ids are, in one round trip a node."""
        places = [(index, shard) for index in sids for shard in self.sharding.every(queue)]
        there = self.scripts.read(*(partial(_has, self.keys(shard).tasks, sids[index]) for index, shard in places))
        return dict(place for place, has in zip(places, there, strict=True) if has)

    def keys(self, shard: Shard) -> Keys:
        """The shard's keys. Raises StoreMisused where its queue has another number of shards than the settings say."""
        self.record.check(shard.queue)
        return keys_of(self._namespace, shard)

    def first_node(self) -> Any:
        """The server that knows what shards there are."""
        return node_of(self._client, shards_key(self._namespace))

    def met(self, shard: Shard) -> tuple[str, ...]:
        """The tenants whose keys a claim or a sweep declares."""
        return self._tenants.get(shard, (DEFAULT_TENANT,))

    def meet(self, shard: Shard, want: Iterable[bytes]) -> None:
        """Remember the tenants whose work waits, so that the next script declares their keys.

        In a tuple of their own: another thread may be sending the one before.
        """
        met, wanted = self.met(shard), [name.decode() for name in want]
        if not set(wanted) <= set(met):
            names = dict.fromkeys([*wanted, *met])
            self._tenants[shard] = tuple(names)[:MAX_WANT]


def _has(tasks: str, sid: str, pipe: Any) -> None:
    pipe.hexists(tasks, sid)
