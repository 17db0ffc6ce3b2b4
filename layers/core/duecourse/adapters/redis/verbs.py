"""Verbs on shards: the script of one shard or of many, its keys, the tenants that it declares, its clock."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import redis

from duecourse.adapters.redis.arguments import Argument
from duecourse.adapters.redis.connect import Client, node_of
from duecourse.adapters.redis.cursors import CursorPlaces
from duecourse.adapters.redis.keys import Keys, keys_of
from duecourse.adapters.redis.scripts import OVERRIDDEN, RESHARDED, Request, Scripts
from duecourse.adapters.redis.shards import ShardsOnRecord
from duecourse.domain.shards import Sharding
from duecourse.domain.task import DEFAULT_TENANT, Shard
from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ports.clock import Clock
from duecourse.ports.ledger import Away, answered

MAX_WANT = 128
"""Most tenants whose keys one claim declares."""
REPLICATED = frozenset({"add", "bulk", "cancel", "configure", "move", "put", "replay", "schedule", "unschedule"})
"""Verbs whose changes are on replicas before the caller has an answer."""

T = TypeVar("T")
R = TypeVar("R")


class Question(NamedTuple, Generic[R]):
    """A verb that asks the same of many shards, and may be sent twice; `read` makes a script's answer a value."""

    verb: str
    request: Callable[[Shard], Request]
    read: Callable[[Shard, Any], R]


class Verbs:
    """Verbs on the shards of one namespace; `wait` is the number of replicas that must have what REPLICATED change."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        sharding: Sharding,
        travel: Clock | None,
        wait: int = 0,
        max_queues: int = 0,
    ) -> None:
        self.scripts = Scripts(client, travel)
        self.namespace = namespace
        self.sharding = sharding
        self.wait = wait
        self.cursors = CursorPlaces(self.scripts, namespace)
        self.record = ShardsOnRecord(self.scripts, namespace, sharding, wait, max_queues)
        self._travelling: set[Shard] = set()
        self._tenants: dict[Shard, tuple[str, ...]] = {}

    def keys(self, shard: Shard) -> Keys:
        """The shard's keys. Raises WrongShards where its queue has another number of shards than the settings say."""
        self.record.check(shard.queue)
        return keys_of(self.namespace, shard)

    def run(self, verb: str, shard: Shard, tenants: Iterable[str], arguments: Sequence[Argument]) -> Any:
        """Answer of a verb's script on one shard: a list, NOT_ALONE or UNREGISTERED."""
        request = self.request(shard, tenants, arguments)
        replicas = self.wait if verb in REPLICATED else 0
        return self._checked(shard, self.scripts.evaluate(verb, request, replicas=replicas))

    def request(self, shard: Shard, tenants: Iterable[str], arguments: Sequence[Argument]) -> Request:
        """Everything that a verb's script gets on a shard, whose clock travels if the store's does."""
        keys = self.keys(shard)
        if self.scripts.travel and shard not in self._travelling:
            self.scripts.command("HSET", keys.meta, "clock", "travel")
            self._travelling.add(shard)
        return self.scripts.request(keys, tenants, arguments, self.sharding.count(shard.queue))

    def ask(self, question: Question[R], shard: Shard) -> R:
        """Answer of one shard."""
        answer = self.scripts.evaluate(question.verb, question.request(shard))
        return question.read(shard, self._checked(shard, answer))

    def ask_all(self, question: Question[R], shards: Sequence[Shard]) -> list[R | Away]:
        """Answer of each shard, or the StoreUnavailable or StoreMisused instead; a round trip a node."""
        answers: dict[Shard, R | Away] = {}
        nodes: dict[redis.Redis, dict[Shard, Request]] = {}
        for shard in shards:
            request = answered(partial(question.request, shard))
            if isinstance(request, tuple):
                node = node_of(self.scripts.client, keys_of(self.namespace, shard).tasks)
                nodes.setdefault(node, {})[shard] = request
            else:
                answers[shard] = request
        for node, requests in nodes.items():
            found = self._ask_node(question, node, requests)
            answers |= found
        return [answers[shard] for shard in shards]

    def _ask_node(
        self, question: Question[R], node: redis.Redis, requests: dict[Shard, Request]
    ) -> dict[Shard, R | Away]:
        first, *others = requests

        def alone(shard: Shard) -> R | Away:
            return answered(partial(self.ask, question, shard))

        try:
            found = self.scripts.evaluate_on(node, question.verb, requests.values())
        except StoreUnavailable:
            answer = alone(first)  # which finds out who has taken over
            if isinstance(answer, StoreUnavailable):
                return dict.fromkeys(requests, answer)
            return {first: answer} | {shard: alone(shard) for shard in others}

        def read(shard: Shard, answer: Any) -> R:
            return question.read(shard, self._checked(shard, answer))

        # An error is that of a script that is not loaded, or of a slot that has moved.
        return {
            shard: alone(shard) if isinstance(answer, Exception) else answered(partial(read, shard, answer))
            for shard, answer in zip(requests, found, strict=True)
        }

    def _checked(self, shard: Shard, answer: Any) -> Any:
        if answer == RESHARDED:
            self.record.refuse(shard)
        if answer == OVERRIDDEN:
            raise StoreMisused("the clock is overridden, and this shard's clock does not travel")
        return answer

    def met(self, shard: Shard) -> tuple[str, ...]:
        """The tenants whose keys a claim or a sweep declares."""
        return self._tenants.get(shard, (DEFAULT_TENANT,))

    def meet(self, shard: Shard, want: Iterable[bytes]) -> None:
        """Remember the tenants whose work waits, so that the next script declares their keys."""
        met, wanted = self.met(shard), [name.decode() for name in want]
        if not set(wanted) <= set(met):
            # A tuple of its own: another thread may be sending the one before.
            self._tenants[shard] = tuple(dict.fromkeys([*wanted, *met]))[:MAX_WANT]


def in_steps(items: Sequence[T], step: Callable[[Sequence[T]], list[R]]) -> list[R]:
    """Answers of `step` for all items: it does the first, and as many more as the bounds of one script allow."""
    answers: list[R] = []
    while len(answers) < len(items):
        answers += step(items[len(answers) :])
    return answers
