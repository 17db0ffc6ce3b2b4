"""A replica takes over that lacks the last writes: what a worker still has must not be drawn again."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest
import redis

from duecourse.errors import StoreUnavailable
from duecourse.ledger.connect import connect
from duecourse.ledger.operation_types import Begun, Lease, Settled
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending, Settlement, Task
from duecourse_local.harness.addresses import LOOPBACK, free_port
from tests.support import redis_ledger
from tests.support.ledger import LATER_MS, SHARD, add, claim, lease_of, new, settle
from tests.support.redis_server import EVERY, RedisServer, need
from tests.support.wait import until

VERBS: dict[str, tuple[Callable[[Ledger, Lease], object], object]] = {
    "settle": (
        lambda ledger, lease: ledger.settle(SHARD, [Settlement(lease.id, "-", lease.token, Ending.DONE)]),
        [Settled.STALE],
    ),
    "extend": (lambda ledger, lease: ledger.extend(SHARD, [lease], 99), [0]),
    "save": (lambda ledger, lease: ledger.save(SHARD, lease, "1"), False),
    "begin": (lambda ledger, lease: ledger.begin(SHARD, [lease], 99, [bytes(8)]), [Begun("", 0, 0)]),
}
"""What is asked under a lease, and the answer where it is lost."""


class Pair(NamedTuple):
    """A primary, and a replica that has what it had when `part` was called."""

    primary: RedisServer
    replica: RedisServer

    def part(self) -> None:
        """Have the replica know all that was written until now, and nothing later."""
        with self.primary.client() as primary, self.replica.client() as replica:
            written = _role(primary)[1]  # WAIT on a connection that wrote nothing counts a replica that still loads
            until(lambda: _role(replica)[3] == b"connected" and _role(replica)[4] >= written)
            replica.replicaof("NO", "ONE")


def _role(server: redis.Redis) -> Any:
    """A primary's offset second; a replica's state fourth, and its own offset fifth."""
    return server.role()


@pytest.fixture(params=EVERY)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    port = str(free_port(0, ""))
    with ExitStack() as running:
        options = ("--bind", LOOPBACK, "--port", port, "--repl-diskless-sync-delay", "0")
        primary = running.enter_context(RedisServer(need(request.param), *options))
        replica = running.enter_context(RedisServer(need(request.param), "--replicaof", LOOPBACK, port))
        yield Pair(primary, replica)


def claimed_unseen(pair: Pair) -> list[Task]:
    """Tasks as they were claimed on a primary that is lost before its replica knows."""
    with connect(pair.primary.url) as client:
        ledger = Ledger(client)
        ledger.add([new(id) for id in "abc"])
        pair.part()
        lost = [claim(ledger)]
        for _ in range(3):  # each draws a fence for each task
            for task in lost[-1]:
                settle(ledger, task, Ending.AGAIN, delay_ms=0)
            lost.append(claim(ledger))
    pair.primary.stop(signal.SIGKILL)
    return [task for tasks in lost for task in tasks]


@contextmanager
def taken_over(pair: Pair) -> Iterator[Ledger]:
    """The ledger on the server that has taken over, whose keys must be in order at the end."""
    with connect(pair.replica.url) as client:
        yield Ledger(client)
        redis_ledger.check(client)


def test_fences_grow_past_those_of_claims_that_a_failover_lost(pair: Pair) -> None:
    lost = claimed_unseen(pair)
    with taken_over(pair) as ledger:
        until(lambda: ledger.now() > lost[-1].claimed_at)
        again = claim(ledger)
    assert {task.id for task in again} == set("abc")
    assert min(task.fence for task in again) > max(task.fence for task in lost)


def test_a_lease_that_a_failover_lost_settles_nothing_and_its_task_runs_again(pair: Pair) -> None:
    lost = claimed_unseen(pair)
    with taken_over(pair) as ledger:
        until(lambda: ledger.now() > lost[-1].claimed_at)
        with pytest.raises(StoreUnavailable):
            settle(ledger, lost[-1], Ending.DONE)
        assert {settle(ledger, task, Ending.DONE) for task in lost} == {Settled.STALE}
        again = claim(ledger)
        assert {settle(ledger, task, Ending.DONE) for task in lost} == {Settled.STALE}
        assert {settle(ledger, task, Ending.DONE) for task in again} == {Settled.DONE}


@pytest.mark.parametrize("id", ["a", "gone"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_server_that_has_not_drawn_a_leases_fence_is_not_believed_at_first(pair: Pair, verb: str, id: str) -> None:
    """It may have been stopped while another server gave the lease, and not know that yet."""
    ask, answer = VERBS[verb]
    lease = lease_of(claimed_unseen(pair)[-1])._replace(id=id)
    with taken_over(pair) as ledger:
        time_of_lease = int(lease.token[:12], 16) // 64
        until(lambda: ledger.now() > time_of_lease)
        with pytest.raises(StoreUnavailable, match="another server has given leases"):
            ask(ledger, lease)
        assert ask(ledger, lease) == answer


def test_what_is_added_after_a_failover_is_newer_than_what_it_lost(pair: Pair) -> None:
    with connect(pair.primary.url) as client:
        ledger = Ledger(client)
        add(ledger, "before", delay_ms=LATER_MS)
        pair.part()
        lost = [add(ledger, "a", delay_ms=LATER_MS + n, on_duplicate="replace") for n in range(5)]
    pair.primary.stop(signal.SIGKILL)
    with taken_over(pair) as ledger:
        assert ledger.get(SHARD.queue, "a") is None
        until(lambda: ledger.now() > lost[-1].created_at)
        assert add(ledger, "a").generation > max(task.generation for task in lost)
