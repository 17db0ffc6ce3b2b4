"""Connections of clients to Redis: shared by those with the same settings, and ended with the last of them."""

import select
import threading
from typing import Any

import pytest
import redis

from duecourse import Client
from duecourse.errors import ClientClosed, DuecourseError
from duecourse.ledger.connect import _quiet
from tests.support.redis_server import RedisServer
from tests.support.wait import until

pytestmark = pytest.mark.slow

HOOK: dict[str, Any] = {"kind": "webhook", "payload": {"url": "https://example.com/"}, "delay": "PT1H"}


def connections(client: redis.Redis) -> int:
    return len(client.client_list(_type="normal")) - 1


def test_the_last_client_of_its_settings_ends_their_connections(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    before = connections(redis_client)
    with Client(redis_server.url) as one:
        with Client(redis_server.url, tenant="acme") as two:
            one.add(**HOOK)
            two.add(**HOOK)
            assert connections(redis_client) == before + 1
        one.add(**HOOK)
        with Client(redis_server.url, namespace="other") as other:
            other.add(**HOOK)
            assert connections(redis_client) == before + 2
    until(lambda: connections(redis_client) == before)  # the server notices a moment later


def test_a_client_that_is_closed_while_threads_use_it_ends_for_all_of_them(redis_server: RedisServer) -> None:
    client, told = Client(redis_server.url), list[str]()
    adding = threading.Barrier(5)

    def add() -> None:
        client.add(**HOOK)
        adding.wait()
        try:
            while True:
                client.add(**HOOK)
        except DuecourseError as error:
            told.append(type(error).__name__)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    adding.wait()
    client.close()
    for thread in threads:
        thread.join()
    assert set(told) <= {ClientClosed.__name__, "StoreUnavailable"}


class ClosedMeanwhile:
    """A connection that another thread closes after it was found open: redis-py 8 polls the socket that is gone."""

    is_connected = True

    def can_read(self) -> bool:
        select.poll().register(None, select.POLLIN)  # type: ignore[arg-type]
        return False


def test_a_connection_that_is_closed_as_it_is_looked_at_is_not_used() -> None:
    assert not _quiet(ClosedMeanwhile())
