"""A drain's store of several servers, none of which holds up the work of the others."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from duecourse.domain.outcomes import Settlement
from duecourse.domain.task import Shard
from duecourse.engine.run import release
from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ports.leases import Claim, Lease, LeaseStore, Settled

T = TypeVar("T")

PATIENCE_S = 1.0
"""Time that a server has for an answer before the drain turns to others."""


class Patient:
    """Claims and settles as `store` does; with several servers, each is called on threads of its own.

    A server that does not answer in time is StoreUnavailable, also for all else, until it has answered. What a late
    claim has leased is the answer to the next claim of its shard. A late settle is made again: it answers as before.
    Where all `shards` of a drain are on one server, nothing else waits for it.
    """

    def __init__(self, store: LeaseStore, shards: Collection[Shard] = ()) -> None:
        self._store = store
        self._is_alone = len(set(map(store.server_of, shards))) == 1
        # A drain claims and settles side by side: of each server, both have a thread.
        self._threads: dict[tuple[str, str], ThreadPoolExecutor] = {}
        self._running: dict[tuple[str, str], Future[Any]] = {}
        self._late: dict[Shard, Future[Claim]] = {}

    def claim(self, shard: Shard, limit: int, **terms: Any) -> Claim:
        """See LeaseStore."""
        server = self._server_of(shard)
        if not server:
            return self._store.claim(shard, limit, **terms)
        claim = partial(self._store.claim, shard, limit, **terms)
        claiming = self._late.get(shard) or self._begin("claim", server, claim)
        self._late.pop(shard, None)
        try:
            return claiming.result(PATIENCE_S)
        except TimeoutError:
            self._late[shard] = claiming
            raise silent(server) from None

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        """See LeaseStore."""
        server = self._server_of(shard)
        settle = partial(self._store.settle, shard, list(settlements))
        return self._done("settle", server, settle) if server else settle()

    def extend(self, shard: Shard, leases: Sequence[Lease], lease_ms: int, *, at_least: bool = False) -> list[int]:
        """See LeaseStore."""
        server = self._server_of(shard)
        extend = partial(self._store.extend, shard, list(leases), lease_ms, at_least=at_least)
        return self._done("extend", server, extend) if server else extend()

    def ping(self) -> None:
        """See Ledger."""
        self._store.ping()

    def close(self) -> None:
        """Wait for nobody; leases of claims that are answered too late are given back."""
        for shard, claiming in self._late.items():
            claiming.add_done_callback(partial(self._give_back, shard))
        for thread in self._threads.values():
            thread.shutdown(wait=False)

    def _server_of(self, shard: Shard) -> str:
        return "" if self._is_alone else self._store.server_of(shard)

    def _done(self, what: str, server: str, call: Callable[[], T]) -> T:
        """Answer of a call that may be made again."""
        try:
            return self._begin(what, server, call).result(PATIENCE_S)
        except TimeoutError:
            raise silent(server) from None

    def _begin(self, what: str, server: str, call: Callable[[], T]) -> Future[T]:
        """Begin a call of a server on its thread. Raises StoreUnavailable where it has not answered the last one."""
        running = self._running.get((what, server))
        if running and not running.done():
            raise StoreUnavailable(f"The store at {server} has not answered yet")
        if (what, server) not in self._threads:
            self._threads[what, server] = ThreadPoolExecutor(1, f"duecourse-{what}-{server}")
        begun = self._threads[what, server].submit(call)
        self._running[what, server] = begun
        return begun

    def _give_back(self, shard: Shard, claiming: Future[Claim]) -> None:
        try:
            tasks = claiming.result().tasks
            if tasks:
                self._store.settle(shard, [release(task) for task in tasks])
        except (StoreUnavailable, StoreMisused):
            pass  # they lapse


def silent(server: str) -> StoreUnavailable:
    """The error of a server that does not answer in time."""
    return StoreUnavailable(f"The store at {server} does not answer within {PATIENCE_S:g} s")
