"""Examination of a whole ledger: its servers, its record of shards, each shard, its ticks."""

from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from duecourse.base.times import span
from duecourse.ledger.connect import Client, primaries_of
from duecourse.ledger.keys import deployed_key, keys_of, parse_shards, rounds_key, shard_of_tasks_key, shards_key
from duecourse.ledger.script_calls import Scripts
from duecourse.ledger.task import Shard

from . import servers
from .finding import Finding, Level
from .servers import Server
from .shard_exam import ShardExam

AT_A_TIME = 1_000
TICKS_MS = 15 * 60_000
"""Time in which ticks leave a trace: they renew their deployment's entries each ten minutes, and note some sweeps."""
TRACES = "ticks leave one each 10 minutes"


class Examination:
    """One examination of one ledger, which changes nothing; `steps` is the number of its parts.

    `looked` is the number of records and entries of indexes examined so far.
    `events` is False where bridges are set to use none. Raises StoreUnavailable.
    """

    def __init__(self, client: Client, namespace: str, *, events: bool) -> None:
        self._client = client
        self._scripts = Scripts(client, None)
        self._namespace = namespace
        self._events = events
        self._members = dict(sorted(parse_shards(self._scripts.command("SMEMBERS", shards_key(namespace)))))
        self._tenants: dict[Shard, list[str]] = defaultdict(list)
        self._lost: list[Shard] = []
        self.steps = 1 + len(self._members)
        self.looked = 0

    def run(self) -> Iterator[tuple[int, list[Finding]]]:
        """The findings of each part, and the number of parts that are done; no findings after each batch of records."""
        self._look_at_keys()
        yield 1, [*self._servers(), *self._record(), *self._ticks()]
        for done, (shard, count) in enumerate(self._members.items(), 1):
            exam, before = ShardExam(self._scripts, self._namespace, shard, count, self._tenants[shard]), self.looked
            for found in exam.run():
                self.looked = before + exam.looked
                yield done, found

    def _look_at_keys(self) -> None:
        """Find the due sets of each shard, and shards that are not registered."""
        due = f"{self._namespace}:{{*}}:due:*"
        for name in self._keys(due):
            head, _, tenant = name.partition("}:due:")
            if shard := shard_of_tasks_key(self._namespace, f"{head}}}:tasks"):
                self._tenants[shard].append(tenant)
        found = (shard_of_tasks_key(self._namespace, name) for name in self._keys(f"{self._namespace}:{{*}}:tasks"))
        self._lost = sorted(shard for shard in found if shard and shard not in self._members)

    def _keys(self, pattern: str) -> set[str]:
        nodes = primaries_of(self._client).values()
        found = self._scripts.call(lambda: {k for node in nodes for k in node.scan_iter(pattern, count=AT_A_TIME)})
        return {key.decode(errors="replace") for key in found}

    def _servers(self) -> Iterator[Finding]:
        bells = [keys_of(self._namespace, shard).bell for shard in self._members]
        hung = sum(self._scripts.read(*(("EXISTS", bell) for bell in bells))) if bells else 0
        for name, node in primaries_of(self._client).items():
            yield from self._scripts.call(partial(servers.examine, Server(node, name, hung, self._events)))

    def _record(self) -> Iterator[Finding]:
        counts: dict[str, set[int]] = defaultdict(set)
        for shard, count in self._members.items():
            counts[shard.queue].add(count)
        for queue, found in counts.items():
            if len(found) > 1:
                text = f"queue {queue} has several numbers of registered shards: {sorted(found)}"
                yield Finding(Level.FAULT, "record of shards", text, f"duecourse reshard {queue} {max(found)}")
        for shard in self._lost:
            text = "it has tasks, but the record of shards lacks it: no tick sees them"
            fix = "nothing to do: a tick registers it within minutes, or the next add to it does"
            yield Finding(Level.FAULT, "record of shards", text, fix, str(shard))

    def _ticks(self) -> Iterator[Finding]:
        traces = [int(at) for at in self._scripts.command("HVALS", rounds_key(self._namespace)) if at.isdigit()]
        deployed = deployed_key(self._namespace)
        newest = self._scripts.command("ZRANGE", deployed, -1, -1)
        traces += [int(self._scripts.command("ZSCORE", deployed, entry) or 0) for entry in newest]
        seconds, _ = self._scripts.command("TIME")
        ago = int(seconds) * 1_000 - max(traces, default=0)
        if not traces:
            text, fix = "no tick has ever run on this ledger", "deploy poll_tick with its schedule, or run a worker"
            yield Finding(Level.WARNING, "tick", text, fix)
        elif ago > TICKS_MS:
            fix = "look at poll_tick: its schedule, its log, its alarms"
            yield Finding(Level.FAULT, "tick", f"the last trace of a tick is {span(ago)} old: {TRACES}", fix)
        else:
            yield Finding(Level.FINE, "tick", f"the last trace of a tick is {span(max(0, ago))} old: {TRACES}")
