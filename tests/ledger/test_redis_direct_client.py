"""The short way of a command: the same answers and errors, no connection lost, none trusted that is not quiet."""

import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from duecourse.ledger.connect import (
    MOST_AT_HAND,
    ONCE,
    UNBOUNDED,
    QuickPool,
    connect,
    execute,
    open_client,
    primaries_of,
)
from tests.support.redis_cluster import ClusterServers
from tests.support.redis_server import RedisServer
from tests.support.wait import until

MOST_THREADS = 256
"""As many tasks as a worker's process may run at a time, each of which may save its state at the same moment."""


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    made = connect(redis_server.url)
    assert isinstance(made, redis.Redis)
    with made:
        yield made


def quick(server: RedisServer, **options: object) -> redis.Redis:
    return redis.Redis.from_pool(QuickPool.from_url(server.url, retry=ONCE, **options))


def normal(server: RedisServer) -> int:
    with server.client() as other:
        return len(other.client_list(_type="normal")) - 1


def test_answers_and_errors_are_those_of_the_client(client: redis.Redis) -> None:
    assert execute(client, "EVAL", "return {1, ARGV[1], ARGV[2], ARGV[3]}", 0, "é", b"\0\r\n", 7) == [
        1, "é".encode(), b"\0\r\n", b"7",
    ]  # fmt: skip
    for _ in range(2):
        with pytest.raises(redis.exceptions.NoScriptError):
            execute(client, "EVALSHA", "0" * 40, 0)
        with pytest.raises(redis.ResponseError, match="no such thing"):
            execute(client, "EVAL", "return redis.error_reply('ERR no such thing')", 0)
    assert execute(client, "PING") == b"PONG"


def test_one_connection_is_used_again_and_again(redis_server: RedisServer, client: redis.Redis) -> None:
    before = normal(redis_server)
    ids = {execute(client, "CLIENT", "ID") for _ in range(5)} | {client.client_id() for _ in range(5)}
    assert len(ids) == 1
    assert normal(redis_server) == before + 1


def test_one_that_the_server_closed_is_made_anew_before_anything_is_sent(
    redis_server: RedisServer, client: redis.Redis
) -> None:
    first = execute(client, "CLIENT", "ID")
    with redis_server.client() as other:  # a connection that kills itself is closed only after its answer
        other.client_kill_filter(_id=str(first))
    assert execute(client, "CLIENT", "ID") != first


def test_what_the_client_closed_is_opened_again(client: redis.Redis) -> None:
    first = execute(client, "CLIENT", "ID")
    client.close()
    assert execute(client, "CLIENT", "ID") != first


def test_an_answer_that_came_too_late_is_not_taken_for_the_next_one(redis_server: RedisServer) -> None:
    with quick(redis_server, socket_timeout=0.2) as client:
        execute(client, "PING")
        with pytest.raises(redis.TimeoutError):
            execute(client, "BLPOP", "never", "0.5")
        assert [execute(client, "ECHO", str(n)) for n in range(3)] == [b"0", b"1", b"2"]


def test_threads_have_a_connection_each_and_no_more_are_kept_than_a_few(
    redis_server: RedisServer, client: redis.Redis
) -> None:
    before, many = normal(redis_server), 2 * MOST_AT_HAND
    together = threading.Barrier(many)

    def ask(n: int) -> list[bytes]:
        together.wait(30)
        return [execute(client, "EVAL", "return ARGV[1]", 0, f"{n}.{i}") for i in range(50)]

    with ThreadPoolExecutor(many) as threads:
        answers = list(threads.map(ask, range(many)))
    assert answers == [[f"{n}.{i}".encode() for i in range(50)] for n in range(many)]
    assert before < normal(redis_server) <= before + many
    client.connection_pool.disconnect(inuse_connections=False)
    until(lambda: normal(redis_server) == before)
    assert execute(client, "PING") == b"PONG"


def test_as_many_threads_as_a_process_may_have_call_at_the_same_time(
    redis_server: RedisServer, client: redis.Redis
) -> None:
    together = threading.Barrier(MOST_THREADS)

    def ask(_: int) -> object:
        together.wait(30)
        return execute(client, "EVAL", "return 1", 0)

    with redis_server.client() as other, ThreadPoolExecutor(MOST_THREADS) as threads:
        asked = threads.map(ask, range(MOST_THREADS))
        other.client_pause(1_000)  # so that each has a connection of its own meanwhile
        assert [*asked] == [1] * (MOST_THREADS)


def test_no_pool_of_any_kind_of_store_has_a_bound_but_one_in_its_url(cluster: ClusterServers) -> None:
    with open_client(cluster.url) as nodes, open_client("redis+sentinel://127.0.0.1:1/primary/0") as service:
        pools = [one.connection_pool for one in primaries_of(nodes).values()]
        assert {pool.max_connections for pool in (*pools, service.connection_pool)} == {UNBOUNDED}
    with open_client("redis://127.0.0.1:1/0?max_connections=7") as bounded:
        assert bounded.connection_pool.max_connections == 7


@pytest.mark.parametrize("most", [1, 2])
def test_a_bounded_pool_has_something_left_for_other_commands(redis_server: RedisServer, most: int) -> None:
    with quick(redis_server, max_connections=most) as client:
        for _ in range(3):
            assert execute(client, "PING") == b"PONG"
            assert client.ping()


def _asked_in_a_child(client: redis.Redis, answers: "multiprocessing.SimpleQueue[object]") -> None:
    answers.put([execute(client, "CLIENT", "ID") for _ in range(2)])


def test_a_forked_child_has_a_connection_of_its_own(client: redis.Redis) -> None:
    ours = execute(client, "CLIENT", "ID")
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    child = fork.Process(target=_asked_in_a_child, args=(client, answers))
    child.start()
    child.join(10)
    theirs = answers.get()
    assert theirs[0] == theirs[1] != ours
    assert execute(client, "CLIENT", "ID") == ours
