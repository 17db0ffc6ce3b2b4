"""Small records of a namespace beside the tasks: requests, sweeps, schedule files, data keys, deployments, queries."""

import json
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from duecourse.ledger.keys import (
    deployed_key,
    files_key,
    functions_key,
    queries_key,
    requests_keys,
    rounds_key,
    seals_key,
)
from duecourse.ledger.operation_types import (
    KEPT_MS,
    PRUNE,
    Deployed,
    KeyedRequest,
    RequestState,
    SavedResponse,
    WrappedKey,
)
from duecourse.ledger.operations.base import ScriptRunner
from duecourse.ledger.schedule import Entry, FileState
from duecourse.ledger.script_calls import Scripts, load
from duecourse.ledger.script_codec import Argument
from duecourse.ledger.task import Shard

# Requests with an Idempotency-Key: one hash and one sorted set under a hash tag of their own, without TTL.

STATES = {
    0: RequestState.NEW,
    1: RequestState.AGAIN,
    -1: RequestState.UNDER_WAY,
    -2: RequestState.ENDED,
    -3: RequestState.OTHER,
    -4: RequestState.OVER_QUOTA,
}


class IdempotencyStore:
    """The requests that were begun and their answers, each for KEPT_MS.

    Every verb is one step and raises StoreUnavailable. `wait` is the number of replicas that must have a request that
    is begun, and its answer.
    """

    def __init__(self, scripts: Scripts, namespace: str, wait: int = 0) -> None:
        self._scripts = scripts
        self._keys = requests_keys(namespace)
        self._wait = wait

    def begin(self, sent: KeyedRequest, owner: bytes, lock_ms: int) -> SavedResponse:
        """Take a request for `owner` (8 bytes) unless it has ended, or another has it, each for its own `lock_ms`.

        The same owner again gets the same answer. A tenant may have as much kept as its quota says, and as much again
        in each KEPT_MS. The answer to a request that was begun is kept, however large it is.
        """
        arguments = (self._scripts.clock(), _field(sent), sent.fingerprint, owner, lock_ms, KEPT_MS, sent.max_bytes)
        code, answer, left_ms, begun_at = self._run("request_begin", *arguments, replicas=self._wait)
        state = STATES[code]
        if state is RequestState.AGAIN:
            return SavedResponse(state, b"", left_ms, begun_at, answer)
        return SavedResponse(state, answer, left_ms, begun_at)

    def note(self, sent: KeyedRequest, owner: bytes, note: bytes) -> bool:
        """Save the owner's note for later tries of the request; False where another owner has it by now."""
        return self._end(sent, owner, b"N" + note, replicas=self._wait)

    def end(self, sent: KeyedRequest, owner: bytes, answer: bytes) -> bool:
        """Keep the answer; False where the request is not the owner's any more."""
        return self._end(sent, owner, b"A" + answer, replicas=self._wait)

    def release(self, sent: KeyedRequest, owner: bytes) -> bool:
        """Give the request back unanswered: the same may be sent again at once, under this key no other."""
        return self._end(sent, owner, b"U")

    def forget(self, sent: KeyedRequest, owner: bytes) -> bool:
        """Forget the request: its key is free."""
        return self._end(sent, owner, b"X")

    def prune(self) -> int:
        """Forget what is older than KEPT_MS, at most PRUNE of it; answers how many those were."""
        return int(self._run("request_forget", self._scripts.clock(), KEPT_MS, PRUNE))

    def _end(self, sent: KeyedRequest, owner: bytes, state: bytes, *, replicas: int = 0) -> bool:
        arguments = (self._scripts.clock(), _field(sent), sent.fingerprint, owner, state, KEPT_MS, sent.max_bytes)
        return bool(self._run("request_end", *arguments, replicas=replicas))

    def _run(self, name: str, *arguments: Argument, replicas: int = 0) -> Any:
        return self._scripts.evaluate(name, (len(self._keys), (*self._keys, *arguments)), replicas=replicas)


def _field(sent: KeyedRequest) -> str:
    return f"{sent.tenant}/{sent.key}"


# Times of sweeps: one hash beside the record of shards, without TTL.


class Rounds:
    """Instants at which each part of the shards was last swept, by its number; every verb raises StoreUnavailable."""

    def __init__(self, scripts: Scripts, namespace: str) -> None:
        self._scripts = scripts
        self._key = rounds_key(namespace)

    def swept_at(self) -> dict[int, int]:
        """The instant of each part's last sweep; a part that was never swept is left out."""
        noted = self._scripts.command("HGETALL", self._key).items()
        return {int(part): int(at) for part, at in noted if part.isdigit() and at.isdigit()}

    def note(self, parts: Iterable[int], at: int) -> None:
        """Note that every idle shard of these parts, one at least, was swept at `at`."""
        self._scripts.command("HSET", self._key, *(word for part in parts for word in (part, at)))


# Schedule files: one hash beside the record of shards, without TTL.

ENTRIES = b"entries:"


class FileRecord:
    """Record of schedule files: the highest number, and what files have made; every verb raises StoreUnavailable."""

    def __init__(self, scripts: Scripts, namespace: str) -> None:
        self._scripts = scripts
        self._key = files_key(namespace)

    def read(self) -> FileState:
        """State of the files."""
        return _noted(self._scripts.command("HGETALL", self._key).items())

    def highest(self) -> int:
        """The highest number that was begun."""
        return _number(self._scripts.command("HGET", self._key, "begun"))

    def begin(self, number: int, digest: str, entries: Collection[Entry]) -> FileState:
        """Note that a file is being applied, and what it is to make, if none with a higher number was begun.

        Answers the state then: `entries` are those of every file that was begun since one settled.
        """
        made = json.dumps(sorted(entries), separators=(",", ":"), ensure_ascii=False)
        return self._step(number, "begin", digest, made)

    def finish(self, number: int) -> bool:
        """Note that a file is applied; False, and nothing noted, if a higher one was begun since."""
        return self._step(number, "finish").applied == number

    def settle(self, number: int) -> bool:
        """Forget the entries of earlier files; False, and nothing noted, if a higher one was begun since."""
        return self._step(number, "settle").settled == number

    def _step(self, number: int, step: str, *rest: str) -> FileState:
        arguments: tuple[Argument, ...] = (self._key, self._scripts.clock(), number, step, *rest)
        flat = self._scripts.evaluate("schedule_file", (1, arguments))
        return _noted(zip(flat[::2], flat[1::2], strict=True))


def _noted(fields: Iterable[tuple[bytes, bytes]]) -> FileState:
    found = dict(fields)
    begun, begun_at, applied, settled = (
        _number(found.get(name)) for name in (b"begun", b"begun_at", b"applied", b"settled")
    )
    made = [json.loads(value) for name, value in found.items() if name.startswith(ENTRIES)]
    entries = frozenset(Entry(*one) for rows in made for one in rows)
    return FileState(begun, begun_at, applied, settled, found.get(b"digest", b"").decode(), entries)


def _number(value: bytes | None) -> int:
    return int(value or 0)


# Deployments: one sorted set beside the record of shards, without TTL.

DEPLOYMENT_RENEWED_MS = 10 * 60_000
"""Age of a deployment's entry from which its next writer renews it."""
DEPLOYMENT_KEPT_MS = 60 * 60_000
"""Time for which an entry is kept that no deployment writes any more: two may run beside each other in a rollout."""
MAX_DEPLOYMENT_ENTRIES = 10_000
"""Maximum number of entries that are read."""
MEMBER = re.compile(r"(inline|target) ([A-Za-z0-9._:@-]{1,64})|(results) ([A-Za-z0-9._:@/-]{1,300})")


class Deployments:
    """Record of deployments, for programs that know the ledger's address alone; both verbs raise StoreUnavailable."""

    def __init__(self, scripts: Scripts, namespace: str) -> None:
        self._scripts = scripts
        self._key = deployed_key(namespace)

    def write(self, kinds: Collection[str], handed: Collection[str], results: str = "") -> bool:
        """Record the kinds of a deployment, and drop entries that no deployment wrote for DEPLOYMENT_KEPT_MS.

        True if the record changed: an entry that was written within DEPLOYMENT_RENEWED_MS is left alone.
        """
        entries: list[Argument] = [f"{'target' if kind in handed else 'inline'} {kind}" for kind in sorted(kinds)]
        entries += [f"results {results}"] if results else []
        arguments = (self._key, self._scripts.clock(), DEPLOYMENT_RENEWED_MS, DEPLOYMENT_KEPT_MS, *entries)
        return bool(self._scripts.evaluate("deploy", (1, arguments)))

    def read(self) -> Deployed:
        """The kinds and the table of all deployments, as the newest writing left them.

        An entry of another form, which another program has put there, is left out.
        """
        found = self._scripts.command("ZRANGE", self._key, 0, MAX_DEPLOYMENT_ENTRIES - 1, "WITHSCORES")
        rows = [(member.decode(errors="replace"), int(at)) for member, at in zip(found[::2], found[1::2], strict=True)]
        known = [(*member.split(" "), at) for member, at in rows if MEMBER.fullmatch(member)]
        tables = [name for what, name, _ in known if what == "results"]
        return Deployed(
            frozenset(name for what, name, _ in known if what != "results"),
            frozenset(name for what, name, _ in known if what == "target"),
            tables[-1] if tables else "",
            known[-1][-1] if known else 0,
        )


# Queries in flight, whose requests wait for a call: one hash of tenants under a hash tag of its own, without TTL.


class InFlight:
    """Queries in flight of each tenant, over all processes. Every verb is one step and raises StoreUnavailable."""

    def __init__(self, scripts: Scripts, namespace: str) -> None:
        self._scripts = scripts
        self._key = queries_key(namespace)

    def admit(self, tenant: str, id: str, most: int, for_ms: int) -> str:
        """Count a query as in flight unless `most` others of its tenant are; "" then, else the entry for `dismiss`.

        The entry ends by itself after `for_ms`, at most 15 minutes.
        """
        arguments = (self._scripts.clock(), tenant, id, for_ms, most)
        entry: bytes = self._scripts.evaluate("admit", (1, (self._key, *arguments)))
        return entry.decode()

    def dismiss(self, tenant: str, entry: str) -> None:
        """Count the query of an entry no more; an entry that has ended is no error."""
        self._scripts.evaluate("dismiss", (1, (self._key, self._scripts.clock(), tenant, entry)))


# Data keys that seal credentials: one hash beside the record of shards, without TTL.

CURRENT = "current"
"""Field with the id of the data key that seals now; the other fields are the keys by their ids."""


class SealKeys:
    """The data keys of a namespace, kept for good; every verb raises StoreUnavailable.

    As many replicas have a new key as must have a task.
    """

    def __init__(self, runner: ScriptRunner) -> None:
        self._runner = runner
        self._scripts = runner.scripts
        self._key = seals_key(runner.namespace)

    def current(self) -> WrappedKey | None:
        """The data key that seals now; None before the first. Two round trips."""
        id: bytes | None = self._scripts.command("HGET", self._key, CURRENT)
        wrapped = self.get(id.decode()) if id else None
        return WrappedKey(id.decode(), wrapped) if id and wrapped else None

    def get(self, id: str) -> bytes | None:
        """A data key as it is wrapped, of now or of before; None for one that the ledger does not have."""
        wrapped: bytes | None = self._scripts.command("HGET", self._key, id)
        return wrapped

    def put(self, key: WrappedKey, instead_of: str) -> WrappedKey:
        """Let `key` seal from now on if the one of the id `instead_of` ("" for none) still does; answers who does."""
        arguments = (1, (self._key, self._scripts.clock(), key.id, key.wrapped, instead_of))
        id, wrapped = self._scripts.evaluate("rekey", arguments, replicas=self._runner.wait)
        return WrappedKey(id.decode(), wrapped)


# Kinds due soon, and functions that nothing invoked lately: one hash under a hash tag of its own, without TTL.

WORKED = ("claim", "fire", "begin", "settle", "extend")
"""Verbs that a worker of tasks uses."""
TENANTS = 8
"""Number of tenants whose tasks are looked at: those whose heads come due first."""


class Warmth:
    """Knowledge that lets functions be warm in time; every verb is one bounded look and raises StoreUnavailable."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._runner = runner
        self._scripts = runner.scripts

    def get_ready(self) -> None:
        """Return if the store answers, and have this process prepare the verbs of who works tasks.

        In a checkout this links the scripts, which takes some 50 ms.
        """
        self._scripts.command("HLEN", functions_key(self._runner.namespace))
        for verb in WORKED:
            load(verb)

    def coming(self, shard: Shard, within_ms: int) -> list[str]:
        """Kinds of the first tasks that come due within `within_ms`; throttled tasks are left out.

        Raises StoreMisused where the shard's queue has another number of shards than the settings say.
        """
        first = self._scripts.command("ZRANGE", self._runner.keys(shard).heads, 0, TENANTS - 1)
        kinds = (
            self._runner.run("coming_kinds", shard, [tenant.decode() for tenant in first], [within_ms]) if first else []
        )
        return [kind.decode() for kind in kinds]

    def idle(self, functions: Sequence[str], idle_ms: int) -> list[str]:
        """Functions that nothing invoked for `idle_ms`; all given functions count as invoked from now on."""
        key, clock = functions_key(self._runner.namespace), self._scripts.clock()
        return [
            name.decode() for name in self._scripts.evaluate("idle_functions", (1, (key, clock, idle_ms, *functions)))
        ]
