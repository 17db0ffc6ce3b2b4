"""A server that may remove tasks once it is full: each tick says so."""

import logging

import pytest
import redis

from duecourse.ledger.operations.ledger import Ledger
from duecourse.ringing.tick import Retention, Sweeper
from tests.support.engine import MARGIN_MS, ample, engine
from tests.support.ledger import new
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.slow


def tick(client: redis.Redis) -> int:
    """Number of tasks that one tick works."""
    ledger = Ledger(client)
    ledger.add([new()])
    with engine(ledger, lambda _task: None) as run:
        sweeper = Sweeper(ledger, run.drainer, Retention(86_400_000), MARGIN_MS)
        return sweeper.tick(sweeper.survey(ample), ample).done


@pytest.mark.parametrize(
    ("policy", "warned"), [("allkeys-lru", 1), ("allkeys-random", 1), ("volatile-lru", 0), ("noeviction", 0)]
)
def test_a_tick_reports_a_policy_by_which_tasks_can_be_lost(
    server: RedisServer, caplog: pytest.LogCaptureFixture, policy: str, warned: int
) -> None:
    with server.client() as client, caplog.at_level(logging.ERROR):
        client.config_set("maxmemory-policy", policy)
        assert tick(client) == 1
    assert caplog.text.count(f"TASKS CAN BE LOST: the store's maxmemory-policy is {policy}") == warned
    assert caplog.text.count("redis-cli config set maxmemory-policy noeviction") == warned


def test_a_server_that_does_not_show_its_policy_is_worked_all_the_same(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with server.client() as client, caplog.at_level(logging.ERROR):
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.execute_command("ACL", "SETUSER", "default", "-info")
        assert tick(client) == 1
    assert caplog.text == ""
