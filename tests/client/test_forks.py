"""Programs that fork: each process has its own connections, and a ledger in a process stays that process's."""

import subprocess
import sys
from pathlib import Path

import pytest

from duecourse.ledger.connect import connect
from duecourse.ledger.operations.ledger import Ledger
from tests.support import redis_ledger
from tests.support.drainer import ENVIRONMENT
from tests.support.forking import CHILDREN, EACH, FORKS
from tests.support.http_server import Reply, answering
from tests.support.redis_cluster import ClusterServers
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.slow

AWS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "eu-central-1"}


def forked(case: str, *arguments: str, store: str = "memory://", **environment: str) -> list[str]:
    """What a program prints that forks."""
    # Since 3.12 Python warns of any fork beside threads; that it goes well all the same is what is tested here.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.support.forking", case, *arguments]
    given = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("DUECOURSE_")}
    given |= {"DUECOURSE_STORE": store, **environment}
    return subprocess.run(
        command, env=given, check=True, capture_output=True, text=True, timeout=60
    ).stdout.splitlines()


@pytest.mark.parametrize("where", ["memory", "leveldb"])
def test_a_forked_child_is_told_that_the_ledger_is_its_parents(where: str, tmp_path: Path) -> None:
    store = "memory://" if where == "memory" else f"leveldb://{tmp_path / 'ledger'}"
    parent, rejected, status, after = forked("embedded", store=store)
    assert (parent, status, after) == ("parent", "0", "after")
    assert rejected.startswith("StoreInUse: The ledger is open in process ")
    assert "give DUECOURSE_STORE a Redis" in rejected
    if where == "leveldb":
        assert forked("embedded", store=store)[0] == "parent", "the folder is whole"


def test_a_fork_beside_a_thread_that_builds_a_part_leaves_the_child_no_lock(redis_server: RedisServer) -> None:
    assert forked("building", store=redis_server.url) == ["child", "0"]


def test_a_forked_child_runs_async_handlers_on_a_loop_of_its_own() -> None:
    assert forked("looping") == ["parent", "child", "0"]


def test_a_forked_child_uses_its_parents_clients_on_connections_of_its_own(redis_server: RedisServer) -> None:
    told = forked("clients", redis_server.url)
    assert told == ["['child', 'child']", "0", "['child', 'child', 'parent']"]


def test_a_forked_child_asks_redis_though_a_thread_of_its_parent_has_the_clients_locks(
    redis_server: RedisServer,
) -> None:
    assert forked("locked", redis_server.url) == ["b'PONG'", "b'PONG'", "0", "b'PONG'"]


def test_a_forked_child_asks_a_cluster_though_a_thread_of_its_parent_has_the_clients_locks(
    cluster: ClusterServers,
) -> None:
    assert forked("locked", cluster.url) == ["True", "True", "0", "True"]


def test_a_forked_child_asks_redis_on_a_connection_of_its_own(redis_server: RedisServer) -> None:
    parent, child, status, again = forked("connected", redis_server.url)
    assert status == "0"
    assert parent == again != child


def test_a_forked_child_awaits_on_threads_of_its_own(redis_server: RedisServer) -> None:
    assert forked("awaiting", redis_server.url) == ["parent", "child", "0", "after"]


def test_a_forked_child_waits_for_a_task_on_a_thread_of_its_own(redis_server: RedisServer) -> None:
    assert forked("waiting", redis_server.url) == ["cancelled", "0", "cancelled"]


def test_a_forked_child_calls_the_web_on_a_connection_of_its_own() -> None:
    with answering(lambda _asked: Reply()) as server:
        assert forked("calling", server.url) == ["200", "200", "0", "200"]
        parent, child, again = [asked.client for asked in server.asked]
    assert parent == again != child


def test_a_forked_child_asks_aws_on_a_connection_of_its_own() -> None:
    with answering(lambda _asked: Reply(200, b"{}", {"content-type": "application/x-amz-json-1.0"})) as server:
        assert forked("results", AWS_ENDPOINT_URL=server.url, **AWS) == ["None", "None", "0", "None"]
        parent, child, again = [asked.client for asked in server.asked]
    assert parent == again != child


def test_a_forked_child_reads_secrets_while_a_thread_of_its_parent_reads_them() -> None:
    secret, credential = "redis://host", "Bearer redis://host"
    assert forked("reading_a_secret") == [secret, "0", secret, credential, "0", credential, secret, "0", secret]


def test_a_forked_child_makes_clients_of_aws_while_a_thread_of_its_parent_makes_them() -> None:
    assert forked("making_clients", **AWS) == ["eu-central-1", "0"] * FORKS


def test_a_forked_child_computes_while_its_parent_has_the_turn() -> None:
    assert forked("computing") == ["computed", "0", "computed"]


def test_threads_of_a_parent_and_its_children_add_at_once_and_nothing_is_lost(redis_server: RedisServer) -> None:
    url = redis_server.url
    told = forked("storm", store=url)
    assert told[:-1] == [str(EACH)] * CHILDREN
    assert told[-1] == str([0] * CHILDREN)
    with connect(url) as client:
        ledger = Ledger(client)
        names = ["first", *(f"{who}-{n}" for who in ("parent", "child0", "child1", "child2") for n in range(EACH))]
        assert [name for name in names if ledger.get("default", name) is None] == []
        redis_ledger.check(client)
