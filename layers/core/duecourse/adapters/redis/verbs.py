"""One verb on one shard: its keys, the tenants that are declared, the clock; a shard's first add; tasks looked for."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from duecourse.adapters.redis.connect import Client, node_of
from duecourse.adapters.redis.keys import Keys, keys_of, shards_key
from duecourse.adapters.redis.record import stored_id
from duecourse.adapters.redis.scripts import RESHARDED, UNREGISTERED, Read, Request, Scripts
from duecourse.adapters.redis.shards import ShardsOnRecord
from duecourse.adapters.redis.wire import Argument
from duecourse.domain.shards import Sharding, scatter
from duecourse.domain.task import DEFAULT_TENANT, Shard
from duecourse.ports.clock import Clock
from duecourse.ports.tasks import Reply

MAX_WANT = 128
"""The most tenants whose keys one claim declares."""

T = TypeVar("T")
R = TypeVar("R")
Act = Callable[[Shard, Sequence[int]], list[Reply]]
"""Does something to a shard's tasks, by their indexes: to the first, and as many more as one script's bounds allow."""


class Verbs:
    """The scripts on the shards of one namespace; `wait` is how many replicas must have what a caller is told of."""

    def __init__(self, client: Client, namespace: str, sharding: Sharding, travel: Clock | None, wait: int = 0) -> None:
        self.scripts = Scripts(client, travel)
        self.wait = wait
        self.record = ShardsOnRecord(self.scripts, namespace, sharding, wait)
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
        keys, count = self._ready(shard), self.sharding.count(shard.queue)
        answer = self.scripts.run(verb, keys, tenants, arguments, count=count, again=again, replicas=replicas)
        if answer == RESHARDED:
            self.record.refuse(shard)
        return answer

    def prepare(
        self, shard: Shard, tenants: Sequence[str], arguments: Sequence[Argument]
    ) -> tuple[int, Sequence[Argument]]:
        """How many of a script's arguments are keys, and all of them. Raises as `keys`."""
        return self.scripts.prepare(self._ready(shard), tenants, arguments, self.sharding.count(shard.queue))

    def _ready(self, shard: Shard) -> Keys:
        """The shard's keys, its clock one that travels where the store's does."""
        keys = self.keys(shard)
        if self.scripts.travel and shard not in self._travelling:
            self.scripts.call(lambda: self._client.hset(keys.meta, "clock", "travel"), again=True)
            self._travelling.add(shard)
        return keys

    def add(self, shard: Shard, tenants: Sequence[str], arguments: list[Argument]) -> Any:
        """What add.lua answers, once the shard is on record: the first argument tells the script so."""
        self.keys(shard)  # which says where the number of shards is wrong
        self.record.keep(shard)
        answer = self.change("add", shard, tenants, arguments, again=True)
        if answer == UNREGISTERED:
            self.record.register(shard)
            arguments[0] = 1
            answer = self.change("add", shard, tenants, arguments, again=True)
        return answer

    def change(
        self, verb: str, shard: Shard, tenants: Sequence[str], arguments: Sequence[Argument], *, again: bool
    ) -> Any:
        """What the verb's script answers, once as many replicas have it as must: for what a caller is told of."""
        return self.run(verb, shard, tenants, arguments, again=again, replicas=self.wait)

    def add_ahead(self, shard: Shard, requests: Callable[[], Iterable[Request]], read: Read) -> list[Any] | None:
        """What `read` makes of add.lua's lists for several requests.

        None where they are to be sent one by one, by `add`, which tells why one was refused.
        """
        keys = self.keys(shard)
        self.record.keep(shard)

        def listed(place: int, answer: Any) -> Any:
            return read(place, answer) if isinstance(answer, list) else None

        answers = self.scripts.run_ahead("add", keys, requests, listed, count=self.sharding.count(shard.queue))
        return None if answers is None or None in answers else answers

    def wherever(self, queue: str, ids: Sequence[str], tenant: str, group: str, act: Act) -> list[Reply]:
        """What `act` answers for tasks of a group, or each wherever it is: not in its id's shard, it is looked for."""

        def act_on(shard: Shard, chosen: list[int]) -> list[Reply]:
            return in_steps(chosen, partial(act, shard))

        replies = scatter([self.sharding.of(queue, id, group) for id in ids], act_on)
        absent = [index for index, reply in enumerate(replies) if reply is Reply.ABSENT]
        if group or not absent or self.sharding.count(queue) == 1:
            return replies
        found = self._find(queue, {index: stored_id(tenant, ids[index]) for index in absent})
        indexes = list(found)
        again = scatter(list(found.values()), lambda shard, chosen: act_on(shard, [indexes[i] for i in chosen]))
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


def in_steps(items: Sequence[T], step: Callable[[Sequence[T]], list[R]]) -> list[R]:
    """What `step` answers for all of them: it does the first, and as many more as the bounds of one script allow."""
    answers = step(items)
    while len(answers) < len(items):
        answers += step(items[len(answers) :])
    return answers


def _has(tasks: str, sid: str, pipe: Any) -> None:
    pipe.hexists(tasks, sid)
