"""A stack on a Redis that was there before it: what is told of it, and that it is left as it was."""

import asyncio
from collections.abc import Iterator

import pytest
import redis

from duecourse_local.errors import HarnessError
from duecourse_local.harness.options import Options, Precision
from duecourse_local.harness.redis_server import check_given_redis, turns_events_on
from duecourse_local.harness.stack import Stack
from tests.support.http_server import Reply, answering
from tests.support.matrix import MATRIX, in_turn
from tests.support.redis_server import RedisServer, need, newest

pytestmark = pytest.mark.slow

FLAGS = "notify-keyspace-events"


@pytest.fixture
def given() -> Iterator[RedisServer]:
    with RedisServer(need(newest())) as server:
        yield server


def told(server: RedisServer) -> tuple[list[str], str]:
    """What a stack on it tells, and the flags while it is up."""
    notices: list[str] = []
    options = Options(store=server.url, tick=0)
    with Stack(options, notice=notices.append) as stack, redis.Redis.from_url(stack.store) as client:
        return notices, flags(client)


def flags(client: redis.Redis) -> str:
    return str(client.config_get(FLAGS)[FLAGS])


@pytest.mark.parametrize("before", in_turn("Kg$", ""))
def test_notifications_that_the_bridge_turns_on_are_told_and_put_back(given: RedisServer, before: str) -> None:
    with given.client() as client:
        client.config_set(FLAGS, before)
        before = flags(client)
        notices, meanwhile = told(given)
        assert set(meanwhile) >= {"x", "e", "E"}
        assert len(notices) == 1
        assert f"{FLAGS} is {before!r}: the bridge adds what it needs, and it is put back" in notices[0]
        assert flags(client) == before


@MATRIX
def test_notifications_stay_while_another_program_listens(given: RedisServer) -> None:
    with given.client() as client, client.pubsub() as other:
        other.subscribe("__keyevent@0__:expired")
        other.get_message(timeout=30)
        notices, meanwhile = told(given)
        assert flags(client) == meanwhile
        assert f"stays {meanwhile!r} (it was ''), for other programs listen there" in notices[-1]


@pytest.mark.parametrize(("policy", "warned"), [("allkeys-lru", True), ("volatile-lru", False)])
def test_a_redis_that_throws_tasks_away_when_it_is_full_is_told(
    given: RedisServer, policy: str, *, warned: bool
) -> None:
    notices: list[str] = []
    with given.client() as client:
        client.config_set("maxmemory-policy", policy)
        asyncio.run(check_given_redis(given.url, notices.append, needs_events=False))
        assert flags(client) == ""
    assert [f"maxmemory-policy is {policy}" in notice for notice in notices] == [True] * warned


@pytest.mark.parametrize(
    ("precision", "settings", "heard"),
    [
        (Precision.BRIDGE, {}, True),
        (Precision.LINGER, {"DUECOURSE_EVENTS": "on"}, True),
        (Precision.TICK, {}, False),
        (Precision.BRIDGE, {"DUECOURSE_EVENTS": "off"}, False),
    ],
)
def test_key_events_are_turned_on_where_somebody_hears_them(
    precision: Precision, settings: dict[str, str], *, heard: bool
) -> None:
    assert turns_events_on(precision, settings) is heard


def test_a_database_that_the_server_does_not_have_is_told_in_one_line(given: RedisServer) -> None:
    options = Options(store=f"{given.url}?db=99", precision=Precision.TICK)
    with pytest.raises(
        HarnessError, match=r"db=99 cannot be used: The store rejected the command: DB index is out of range"
    ):
        Stack(options).__enter__()


def test_a_port_on_which_something_else_answers_is_told_in_one_line() -> None:
    with answering(lambda _asked: Reply()) as other:
        options = Options(store=other.url.replace("http:", "redis:"), precision=Precision.TICK)
        with pytest.raises(
            HarnessError,
            match=r"^the store at redis://\S+ cannot be used: The server at the store's address is not a Redis",
        ):
            Stack(options).__enter__()
