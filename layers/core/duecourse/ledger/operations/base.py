"""Base of the ledger's operations: scripts on shards, the record of one task, shards in numbers."""

import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

import redis

from duecourse.base.batches import in_steps
from duecourse.base.times import Clock
from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ledger.connect import Client, answering_first, execute, name_of_node, node_of
from duecourse.ledger.keys import FIELDS, Keys, bell_time, keys_of, ledger_key, settings_of, shards_key
from duecourse.ledger.many_tasks import PagePosition
from duecourse.ledger.operation_types import Away, answered
from duecourse.ledger.queue import SLOT_MS, SLOTS, Stats, share
from duecourse.ledger.record import body_field, lease_end, stored_id, unpack_sound
from duecourse.ledger.schedule import TENANT as SCHEDULES
from duecourse.ledger.script_calls import (
    OVERRIDDEN,
    RESHARDED,
    UNREGISTERED,
    Request,
    Scripts,
    check_version,
    may_be_partially_applied,
)
from duecourse.ledger.script_codec import Argument, pack_completion_options
from duecourse.ledger.shard_registry import ShardRegistry
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import DEFAULT_TENANT, Shard, Task

if TYPE_CHECKING:
    from duecourse.ledger.task_log_lines import TaskLog

# Places in cursors: the times of other tenants' tasks are encrypted in them.

MARK = "~"
"""First character of an encrypted place, which has the id's field: no id of a task begins with it."""
FIELD = "cursors"
"""Field of the ledger's hash with the secret that encrypts places."""
NONCE, INSTANT = 8, 6
"""Sizes in bytes of the two parts of an encrypted place: a random nonce, and the time."""


class CursorPlaces:
    """Encrypts the times in places that are behind other tenants' tasks, by a secret of the ledger."""

    def __init__(self, scripts: Scripts, namespace: str) -> None:
        self._scripts = scripts
        self._key = ledger_key(namespace)
        self._secret = b""

    def hide(self, place: PagePosition, tenant: str) -> PagePosition:
        """The place as a cursor may have it: unchanged at the beginning, and behind a task of the tenant's own."""
        if place.id or not place.at:
            return place
        nonce = secrets.token_bytes(NONCE)
        hidden = place.at ^ self._pad(nonce, tenant, place.section)
        return place._replace(at=0, id=f"{MARK}{nonce.hex()}{hidden:0{2 * INSTANT}x}")

    def reveal(self, place: PagePosition, tenant: str) -> PagePosition:
        """The place that `hide` was given; the beginning where the text is not one of `hide`."""
        if not place.id.startswith(MARK):
            return place
        try:
            nonce, hidden = bytes.fromhex(place.id[1 : 1 + 2 * NONCE]), int(place.id[1 + 2 * NONCE :], 16)
        except ValueError:
            return place._replace(at=0, id="")
        at = hidden ^ self._pad(nonce, tenant, place.section)
        return place._replace(at=at % (1 << 8 * INSTANT), id="")

    def _pad(self, nonce: bytes, tenant: str, section: str) -> int:
        if not self._secret:
            self._scripts.command("HSETNX", self._key, FIELD, secrets.token_bytes(32))
            self._secret = self._scripts.command("HGET", self._key, FIELD)
        drawn = hmac.digest(self._secret, nonce + f"{tenant}/{section}".encode(), "sha256")
        return int.from_bytes(drawn[:INSTANT])


# Scripts on shards: of one or of many, with keys, the tenants that each declares, and the clock.

MAX_WANT = 128
"""Most tenants whose keys one claim declares."""
REPLICATED = frozenset({"add", "bulk", "cancel", "configure", "move", "replay", "schedule", "take_in", "unschedule"})
"""Verbs whose changes are on replicas before the caller has an answer."""
MOST_DOUBTED = 1_000
ASK_S = 1.0
"""Least time between two requests to put tasks right."""
LOOK_AT_EACH = 3
"""Mode of mend.lua: the next sweeps look at each task."""

T = TypeVar("T")
R = TypeVar("R")


class ScriptRequest(NamedTuple, Generic[R]):
    """A verb that asks the same of many shards, and may be sent twice; `read` makes a script's answer a value."""

    verb: str
    request: Callable[[Shard], Request]
    read: Callable[[Shard, Any], R]


class ScriptRunner:
    """Runs scripts on the shards of one namespace; `wait` replicas must have what those in REPLICATED change.

    Shards get the deployment's `quotas` before their first task.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        sharding: Sharding,
        travel: Clock | None,
        wait: int = 0,
        max_queues: int = 0,
        quotas: str | None = None,
    ) -> None:
        self.scripts = Scripts(client, travel)
        self.namespace = namespace
        self.sharding = sharding
        self.wait = wait
        self.quotas = quotas
        self.cursors = CursorPlaces(self.scripts, namespace)
        self.registry = ShardRegistry(self.scripts, namespace, sharding, wait, max_queues)
        self._travelling: set[Shard] = set()
        self._doubted: set[Shard] = set()
        """Shards in which the server rejected a script that may have been half done."""
        self._asked_at = -ASK_S
        self._tenants: dict[Shard, tuple[str, ...]] = {}

    def keys(self, shard: Shard) -> Keys:
        """The shard's keys. Raises WrongShards where its queue has another number of shards than the settings say."""
        self.registry.check(shard.queue)
        return keys_of(self.namespace, shard)

    def run(self, verb: str, shard: Shard, tenants: Iterable[str], arguments: Sequence[Argument]) -> Any:
        """Answer of a verb's script on one shard: a list, NOT_UNIQUE or UNREGISTERED."""
        return self._evaluate(verb, shard, self.request(shard, tenants, arguments))

    def run_registered(self, verb: str, shard: Shard, tenants: Sequence[str], every: list[Argument]) -> Any:
        """Answer of a script by which a shard may get its first task.

        The first argument of the script is 0; 1 once the shard is registered.
        """
        request = self.request(shard, tenants, every)
        self.registry.keep(shard)
        answer = self._evaluate(verb, shard, request)
        if answer == UNREGISTERED:
            self.registry.register(shard)
            every[0] = 1
            if self.quotas:
                self.run("configure", shard, [DEFAULT_TENANT], ("q", self.quotas))
            answer = self.run(verb, shard, tenants, every)
        return answer

    def request(self, shard: Shard, tenants: Iterable[str], arguments: Sequence[Argument]) -> Request:
        """Everything that a script gets on a shard, whose clock travels if the store's does. Raises as `keys`."""
        count, keys = self.registry.check(shard.queue), keys_of(self.namespace, shard)
        if self.scripts.travel and shard not in self._travelling:
            self.scripts.command("HSET", keys.meta, "clock", "travel")
            self._travelling.add(shard)
        return self.scripts.request(keys, tenants, arguments, count)

    def ask(self, question: ScriptRequest[R], shard: Shard) -> R:
        """Answer of one shard."""
        return question.read(shard, self._evaluate(question.verb, shard, question.request(shard)))

    def _evaluate(self, verb: str, shard: Shard, request: Request) -> Any:
        try:
            answer = self.scripts.evaluate(verb, request, replicas=self.wait if verb in REPLICATED else 0)
        except StoreMisused as error:
            self.doubt(verb, shard, error)
            raise
        if self._doubted:
            self._ask_to_put_right()
        return self._checked(shard, answer) if isinstance(answer, int) else answer  # only a number may reject

    def doubt(self, verb: str, shard: Shard, error: StoreMisused) -> None:
        """Remember a shard in which a script may be half done, until the server takes commands again."""
        if may_be_partially_applied(verb, error) and len(self._doubted) < MOST_DOUBTED:
            self._doubted.add(shard)

    def _ask_to_put_right(self) -> None:
        """Have the next sweeps of doubted shards put each task where its record says."""
        if time.monotonic() < self._asked_at + ASK_S:
            return
        self._asked_at = time.monotonic()
        for shard in tuple(self._doubted):
            with suppress(StoreMisused, StoreUnavailable):  # asked again after a later call
                self.scripts.evaluate("mend", self.request(shard, (), (0, LOOK_AT_EACH)))
                self._doubted.discard(shard)

    def ask_all(self, question: ScriptRequest[R], shards: Sequence[Shard]) -> list[R | Away]:
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
        self, question: ScriptRequest[R], node: redis.Redis, requests: dict[Shard, Request]
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
            self.registry.refuse(shard)
        if answer == OVERRIDDEN:
            raise StoreMisused("the clock is overridden, and this shard's clock does not travel")
        return check_version(answer)

    def tenants_of(self, shard: Shard) -> tuple[str, ...]:
        """Tenants whose keys a claim or a sweep declares."""
        return self._tenants.get(shard, (DEFAULT_TENANT,))

    def note_tenants(self, shard: Shard, want: Iterable[bytes]) -> None:
        """Remember the tenants whose work waits, so that the next script declares their keys."""
        known, wanted = self.tenants_of(shard), [name.decode() for name in want]
        if not set(wanted) <= set(known):
            # A tuple of its own: another thread may be sending the one before.
            self._tenants[shard] = tuple(dict.fromkeys([*wanted, *known]))[:MAX_WANT]


# Operations that all others use: time, shards, one task, shards in numbers.


class RawRecord(NamedTuple):
    """Record of a task, the end of its lease if it has one, and its payload where that is apart."""

    data: bytes
    lease_expires_at: float | None
    payload: bytes | None = None


class LedgerBase:
    """Operations and parts that every group of operations uses; for `deaths` see Ledger."""

    def __init__(self, runner: ScriptRunner, *, deaths: bool) -> None:
        self._runner = runner
        self._scripts = runner.scripts
        self._client = runner.scripts.client
        self._namespace = runner.namespace
        self._sharding = runner.sharding
        self._registry = runner.registry
        self._ending = pack_completion_options(deaths=deaths)
        self._log: TaskLog | None = None

    def with_log(self, log: "TaskLog") -> Self:
        """The same ledger, with a log of the changes that are made by it."""
        same = copy(self)
        same._log = log  # noqa: SLF001 - of its own class
        return same

    def close(self) -> None:
        """End the connections to the ledger, or its use of a folder."""
        self._client.close()

    def ping(self) -> None:
        """Return if the store answers; of a cluster, one of its primaries."""
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
        """Name of the server that has a shard, as far as is known; "" where there is only one."""
        return name_of_node(self._client, keys_of(self._namespace, shard).tasks) if self._scripts.in_cluster else ""

    def now(self) -> int:
        """The store's own time in epoch milliseconds."""
        if self._scripts.travel:
            return self._scripts.travel.now()
        node = node_of(self._client, shards_key(self._namespace))
        seconds, micros = self._scripts.call(lambda: execute(node, "TIME"))
        return int(seconds) * 1000 + int(micros) // 1000

    def shards(self) -> list[Shard]:
        """Every shard that was ever added to, or whose queue was ever set."""
        self._registry.find_lost()
        return [shard for shard, _ in self._registry.members()]

    def shard_of(self, queue: str, id: str, group: str = "") -> Shard:
        """Shard of a task of this group, or of none: its leases are settled there."""
        return self._sharding.of(queue, id, group)

    def get(self, queue: str, id: str, tenant: str = DEFAULT_TENANT) -> Task | None:
        """One task, in any shard of its queue. Raises TaskDamaged where its record cannot be read."""
        sid = stored_id(tenant, id)
        task = self._whole(*self._find(queue, id, sid)).get(sid)
        return task and unpack_sound(queue, sid, task.data, lease_end(task.lease_expires_at), task.payload)

    def _find(self, queue: str, id: str, sid: str) -> tuple[Shard, dict[str, RawRecord]]:
        """Look in the id's shard, then in all others, which takes one more round trip."""
        home = self._sharding.of(queue, id)
        count, *found = self._scripts.read(("HGET", self._runner.keys(home).meta, "shards"), *self._reads(sid, [home]))
        self._registry.compare(queue, count)
        shards, others = [home], [shard for shard in self._sharding.every(queue) if shard != home]
        if found[0] is None and others:
            shards, found = others, self._scripts.read(*self._reads(sid, others))
        rows = zip(shards, found[::2], found[1::2], strict=True)
        return next(((shard, {sid: RawRecord(data, end)}) for shard, data, end in rows if data is not None), (home, {}))

    def _whole(self, shard: Shard, tasks: dict[str, RawRecord]) -> dict[str, RawRecord]:
        """The same tasks by stored id, with their payloads; those with payloads apart as they are by now, if at all.

        A second read could miss the payload of a task that was replaced since the first: a script reads both.
        """
        apart = [sid for sid, one in tasks.items() if body_field(sid, one.data)]
        rows = in_steps(apart, lambda sids: self._runner.run("show", shard, (), sids))
        whole = tasks | {sid: RawRecord(*row) for sid, row in zip(apart, rows, strict=True)}
        return {sid: one for sid, one in whole.items() if one.data is not None}

    def _reads(self, sid: str, shards: Sequence[Shard]) -> list[Sequence[Argument]]:
        every = map(self._runner.keys, shards)
        return [command for keys in every for command in (("HGET", keys.tasks, sid), ("ZSCORE", keys.leased, sid))]

    def confirm(self, shard: Shard) -> None:
        """Return once as many replicas as must have a change have all that was written to a shard until now.

        For an answer that reports what was there, and changes nothing. Without `wait`, nothing is sent. Raises
        StoreUnavailable.
        """
        if self._runner.wait:
            self._scripts.confirm(self._runner.keys(shard).meta, self._runner.wait)

    def stats(self, shard: Shard) -> Stats:
        """The shard in numbers: a round trip, and one more if tenants are in the ring, for their heads."""
        return self._runner.ask(self._stats(), shard)

    def stats_of(self, shards: Sequence[Shard]) -> list[Stats | Away]:
        """Many shards in numbers; the error where a shard does not answer.

        A round trip a node, and one more for each shard with tenants in its ring.
        """
        return self._runner.ask_all(self._stats(), shards)

    def _stats(self) -> ScriptRequest[Stats]:
        return ScriptRequest("stats", self._stats_request, self._read_stats)

    def _stats_request(self, shard: Shard) -> Request:
        keys = self._runner.keys(shard)
        every = (*keys.fixed, keys.due(SCHEDULES))
        return len(every), (*every, "successors", "bodies", "bell_at", "lapsed", *FIELDS)

    def _read_stats(self, shard: Shard, answer: Any) -> Stats:
        now, tasks, leased, done, dead, head, parked, ring, bell, fields, waiting, schedules, fires = answer
        successors, bodies, travelling, lapsed, *settings = fields
        scheduled = tasks - int(successors or 0) - int(bodies or 0) - leased - done - dead
        heads = self._heads(self._runner.keys(shard), ring)
        waits = [waiting] if waiting else []
        oldest = min(map(int, (*head[1:], *parked[1:], *waits, *heads)), default=0)
        part = share(settings_of(settings), shard.number, self._sharding.count(shard.queue))
        travel = self._scripts.travel
        now = travel.now() if travel else now
        hung = bell_time(bell or travelling) or 0
        runs = _lapsed(now, lapsed or b"")
        return Stats(scheduled, leased, done, dead, oldest, hung, part, now, schedules, int(fires or 0), *runs)

    def _heads(self, keys: Keys, ring: Sequence[bytes]) -> list[bytes]:
        """Due times of the earliest task of each tenant in the ring."""
        reads = [("ZRANGE", keys.due(tenant.decode()), 0, 0, "WITHSCORES") for tenant in ring]
        return [at for found in (self._scripts.read(*reads) if reads else ()) for at in found[1:]]


def _lapsed(now: int, slots: bytes) -> tuple[int, int]:
    """Runs of the last hour that ended without a settle, and how many of them a target had begun."""
    newest = now // SLOT_MS
    every = (map(int, slot) for slot in re.findall(rb"(\d+):(\d+):(\d+)", slots))
    live = [(runs, at_target) for at, runs, at_target in every if newest - SLOTS < at <= newest]
    return sum(runs for runs, _ in live), sum(at_target for _, at_target in live)
