"""Round trips of a client: one for each add, of a schedule too, and few for many adds."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from duecourse import Client
from duecourse.ledger.operations.adds import PIECE_AHEAD
from duecourse.tasks.http import MAX_BATCH
from tests.support.proxies import load_scripts
from tests.support.redis_monitor import sent_by
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.slow

HOOK: dict[str, Any] = {"kind": "webhook", "payload": {"url": "https://example.com/"}}
LATER = {**HOOK, "delay": "PT1H"}
DAILY = {**HOOK, "repeat": {"cron": "0 9 * * *"}}


@pytest.fixture
def client(server: RedisServer) -> Iterator[Client]:
    with server.client() as other:
        load_scripts(other)
    with Client(server.url) as made:
        made.add(**LATER)  # which registers the shard, and asks for the time
        yield made


def test_an_add_is_one_round_trip(client: Client, server: RedisServer) -> None:
    assert sent_by(server, lambda: client.add(**LATER)) == ["EVALSHA"]


def test_an_add_of_a_schedule_is_one_round_trip(client: Client, server: RedisServer) -> None:
    assert sent_by(server, lambda: client.schedules.add(**DAILY, id="a")) == ["EVALSHA"]
    assert client.schedules.get("a").upcoming[0].local.endswith("T09:00:00+00:00")


def test_a_thousand_adds_at_once_are_a_few_round_trips(client: Client, server: RedisServer) -> None:
    added = list[Any]()
    sent = sent_by(server, lambda: added.extend(client.add_many([LATER] * MAX_BATCH)))  # type: ignore[list-item]
    assert sent == ["EVALSHA"] * (MAX_BATCH // PIECE_AHEAD)
    ids = {one.task.id for one in added if one.created}
    assert len([id for id in ids if re.fullmatch(r"[0-9a-f]{24}", id)]) == MAX_BATCH
