"""Connections to a node of a cluster that stands still: the first command waits for it, and no other does."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from duecourse.ledger import connect
from duecourse.ledger.connect import ONCE, SILENT, NodePool
from duecourse_local.harness.addresses import LOOPBACK, free_port
from tests.support.redis_server import RedisServer, need, newest
from tests.support.wait import until

pytestmark = pytest.mark.slow


class Node:
    """A server on a port, a client of it by the pool, and a client of the test's own by its socket."""

    def __init__(self, server: RedisServer, port: int) -> None:
        self._server = server
        self.pool: Any = NodePool(
            host=LOOPBACK, port=port, socket_timeout=0.2, socket_connect_timeout=0.2, retry=ONCE, protocol=2
        )
        self.client = redis.Redis(connection_pool=self.pool)

    def stop(self) -> None:
        self._server.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._server.process.send_signal(signal.SIGCONT)

    def fails(self) -> str:
        """Text of the error of one command."""
        with pytest.raises((redis.ConnectionError, redis.TimeoutError)) as caught:
            self.client.ping()
        return str(caught.value)


@pytest.fixture
def node() -> Iterator[Node]:
    port = free_port(0, "")
    with RedisServer(need(newest()), "--bind", LOOPBACK, "--port", str(port)) as server:
        node = Node(server, port)
        yield node
        node.go_on()
        node.pool.disconnect()


def test_once_a_command_had_no_answer_the_next_ones_are_refused_at_once(node: Node) -> None:
    node.client.ping()
    node.stop()
    assert "Timeout" in node.fails()
    node.pool._outage._trial_at = float("inf")
    assert [node.fails() for _ in range(1_000)] == [SILENT] * 1_000  # each would wait 0.2 s
    node.go_on()
    assert node.fails() == SILENT, "no trial is due"
    node.pool._outage._trial_at = 0.0
    until(lambda: answers(node.client))
    assert not node.pool._outage.lasts


def test_a_trial_is_one_callers_and_comes_ever_less_often(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "TRIAL_S", 0.05)
    node.client.ping()
    node.stop()
    node.fails()
    outage = node.pool._outage
    for _ in range(20):
        outage._trial_at = 0.0
        node.fails()
    assert not outage.take_trial(), "the pause lasts"
    outage._trial_at = 0.0
    assert outage.take_trial()
    assert not outage.take_trial(), "another caller does not wait"


def test_a_node_that_takes_no_login_answers(node: Node) -> None:
    with node._server.client() as operator:
        node.client.ping()
        operator.config_set("requirepass", "x")
        node.pool.disconnect()
        assert "uthentication" in node.fails() or "NOAUTH" in node.fails()
        assert not node.pool._outage.lasts
        operator.config_set("requirepass", "")


def test_a_port_on_which_nobody_listens_is_away_until_somebody_does() -> None:
    port = free_port(0, "")
    pool: Any = NodePool(
        host=LOOPBACK, port=port, socket_timeout=0.2, socket_connect_timeout=0.2, retry=ONCE, protocol=2
    )
    client = redis.Redis(connection_pool=pool)
    with pytest.raises(redis.ConnectionError):
        client.ping()
    assert pool._outage.lasts
    with RedisServer(need(newest()), "--bind", LOOPBACK, "--port", str(port)):
        until(lambda: answers(client), seconds=30)
    pool.disconnect()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
