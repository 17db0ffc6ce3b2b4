"""A login with the rights that the pages give: the product works under it, and it reaches nothing else."""

import logging
import re
from collections.abc import Callable
from contextlib import suppress

import pytest
import redis

from duecourse.errors import StoreMisused
from duecourse.ledger import redis_acl
from duecourse.ledger.connect import connect
from duecourse.ledger.keys import keys_of
from duecourse.ledger.maintenance import Mend, Reshard
from duecourse.ledger.operation_types import Settled
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.redis_acl import USER, Rights
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, Shard
from duecourse.ledger.watched_keys import Pattern, Watch
from tests.support.bridges import NAMESPACE, Recorder, bell_setter, bridging
from tests.support.commands import in_this_process
from tests.support.ledger import LEASE_MS, ending, new
from tests.support.matrix import MATRIX
from tests.support.pages import DOCS
from tests.support.redis_cluster import ClusterServers
from tests.support.redis_login import logged_in, logged_in_to_each, refused, rights_on
from tests.support.redis_server import REDIS, RedisServer
from tests.support.source import LAYER
from tests.support.triggers import triggers
from tests.support.wait import until

pytestmark = pytest.mark.slow

PAGE = (DOCS / "how-to" / "redis-login.md").read_text()
FOREIGN = [
    "GET other:key",
    "SET duecourses:key 1",
    "HGETALL {duecourse}:shards",
    "EVAL return{redis.call('GET','other:key')} 0",
    "EVAL return{redis.call('FLUSHALL')} 0",
    "FLUSHALL",
    "KEYS *",
    "CONFIG SET dir /tmp",
    "CONFIG GET requirepass",
    "ACL LIST",
    "CLIENT LIST",
    "MONITOR",
    "MODULE LIST",
    "SAVE",
    "DEBUG SLEEP 0",
    "SCRIPT FLUSH",
    "REPLICAOF localhost 1",
    "EXPIRE duecourse:shards 1",
    "PUBLISH other 1",
    "SUBSCRIBE other",
    "PSUBSCRIBE *",
]
"""What a stranger with the login would try."""
NOT_A_BRIDGES = [
    "GET duecourse:{default/0}:tasks",
    "HGETALL duecourse:{default/0}:tasks",
    "DEL duecourse:{default/0}:bell",
    "SREM duecourse:shards default/0/1",
    "EVAL return{1} 0",
    "SCAN 0",
    "INFO",
]


WATCHED = "other-{n}"


class Served:
    """A server by the URL of a login."""

    def __init__(self, url: str) -> None:
        self.url = url


def words(command: str) -> list[str]:
    if command.startswith("EVAL "):
        return ["EVAL", command.removeprefix("EVAL ").removesuffix(" 0"), "0"]
    return command.split(" ")


def test_the_page_shows_the_lines_that_the_tests_run_under() -> None:
    shown = re.findall(r"^    (ACL SETUSER .*)$", PAGE, re.MULTILINE)
    assert shown == [Rights().line(), Rights(bridge=True).line()]


@pytest.mark.parametrize(
    ("words", "rights"),
    [
        ((), Rights()),
        (("--bridge", "--namespace", "mine"), Rights("mine", bridge=True)),
        (("--before-7", "--store", "redis://localhost/3"), Rights(database=3, reads_apart=False)),
        (("--store", "redis+sentinel://localhost/primary/2"), Rights(database=2)),
        (("--store", "redis-cluster://localhost"), Rights(cluster=True)),
    ],
)
def test_the_command_prints_the_line_for_what_it_is_given(words: tuple[str, ...], rights: Rights) -> None:
    printed = in_this_process("acl", *words)
    assert printed.exit_code == 0, printed.output
    assert printed.stdout == rights.line() + "\n"


def test_a_store_without_users_is_rejected() -> None:
    printed = in_this_process("acl", "--store", "leveldb:///a/folder")
    assert printed.exit_code != 0
    assert "only Redis has users" in " ".join(printed.output.split())


def test_each_command_that_is_named_is_one_that_the_code_sends() -> None:
    package = LAYER / "duecourse" / "ledger"
    code = "".join(path.read_text() for path in package.rglob("*.py"))
    named = {*redis_acl.LEDGER, *redis_acl.BELLS, *redis_acl.EVENTS, *redis_acl.REPLICAS}
    assert sorted(name for name in named if not re.search(rf'"{name.upper()}"|\.{name}\b(?!\.)', code)) == []


def rejected(client: redis.Redis, commands: list[str]) -> list[str]:
    """The commands that the server runs all the same."""
    done = []
    for command in commands:
        with suppress(redis.ResponseError):
            client.execute_command(*words(command))
            done.append(command)
    return done


@pytest.mark.parametrize("version", REDIS)
def test_the_login_reaches_nothing_of_others(version: str, server_of: Callable[[str], RedisServer]) -> None:
    server = server_of(version).emptied()
    for bridge, more in ((False, []), (True, NOT_A_BRIDGES)):
        with redis.Redis.from_url(logged_in(server, rights_on(version, bridge=bridge))) as client:
            assert client.smembers("duecourse:shards") == set()
            assert rejected(client, [*FOREIGN, *more]) == []


@pytest.mark.parametrize("version", REDIS)
def test_the_commands_of_the_harness_work_under_it(version: str, server_of: Callable[[str], RedisServer]) -> None:
    server = server_of(version).emptied()
    with connect(logged_in(server, rights_on(version))) as client, server.client() as operator:
        Ledger(client).add([new("a"), new("b", payload=f'"{"x" * 5_000}"')])
        operator.delete(keys_of("duecourse", Shard()).due("-"))
        assert Mend(client, "duecourse", LEASE_MS, print).run().put_back == 2
        Reshard(client, "duecourse", "default", 3, print).run(0)
        moved = Ledger(client, sharding=Sharding({"default": 3}))
        assert all(moved.get("default", id) for id in "ab")
        assert (len(moved.shards()), moved.warnings()) == (3, [])
    assert refused(server) == set()


@pytest.mark.parametrize("alone", [True, False], ids=["with a login of its own", "with the functions' login"])
def test_a_bridge_hears_and_rings(
    alone: bool, server: RedisServer, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    login = Served(logged_in(server, Rights(NAMESPACE, bridge=alone, reads_apart=False)))
    with bell_setter(server) as bells, caplog.at_level(logging.INFO):
        bells.redis.config_set("notify-keyspace-events", "Exe")
        with bridging(login, recorder, beat_s=0.1) as bridge:
            bell = bells.shard("default/0")
            at = bells.hang(bell, 300)
            until(lambda: any(one.at >= at for one in recorder.of(bell)))
            assert bridge.stats().events is True
    assert refused(server) <= {"config", "config|get"}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_another_database_needs_one_command_more(redis_server: RedisServer) -> None:
    url = logged_in(redis_server, Rights(database=3, reads_apart=False))
    with connect(f"{url}?db=3") as client:
        assert Ledger(client).add([new("a")])
    assert refused(redis_server) == set()


def test_a_bridge_that_may_not_set_the_flags_names_them_and_rings_all_the_same(
    server: RedisServer, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    login = Served(logged_in(server, Rights(NAMESPACE, bridge=True)))
    with bell_setter(server) as bells, bridging(login, recorder, beat_s=0.1) as bridge:
        bell = bells.shard("default/0")
        at = bells.hang(bell, 300)
        until(lambda: any(one.at >= at for one in recorder.of(bell)))
        assert bridge.stats().events is False
    [said] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said.startswith("EVENTS OFF")
    assert "set notify-keyspace-events to Exe at the server" in said


def test_a_watched_key_is_heard_though_the_login_cannot_read_it(server: RedisServer) -> None:
    login = Served(logged_in(server, Rights(NAMESPACE, bridge=True)))
    with server.client() as client, triggers(server, [Watch(Pattern(WATCHED), "message")]) as house:
        client.config_set("notify-keyspace-events", "Exe")
        with bridging(login, house, watched=[WATCHED]):
            client.set("other-1", "v", px=60)
            until(lambda: house.heard)


@pytest.mark.parametrize("lacking", ["zadd", "evalsha"])
def test_a_right_that_is_missing_is_named(lacking: str, redis_server: RedisServer) -> None:
    url = logged_in(redis_server, Rights(reads_apart=False))
    with redis_server.client() as operator:
        operator.execute_command("ACL", "SETUSER", USER, f"-{lacking}")
    with connect(url) as client, pytest.raises(StoreMisused, match=r"(?i)permission|user|acl"):
        Ledger(client).add([new("a")])


@MATRIX
def test_a_cluster_needs_two_commands_more(cluster: ClusterServers, recorder: Recorder) -> None:
    with connect(logged_in_to_each(cluster, Rights(cluster=True, replicas=True))) as client:
        ledger = Ledger(client, sharding=Sharding({"default": 8}), wait=1)
        ledger.add([new(str(n)) for n in range(20)])
        assert len(ledger.shards()) == 8
        for shard in ledger.shards():
            claimed = ledger.claim(shard, 20, lease_ms=LEASE_MS).tasks
            assert ledger.settle(shard, [ending(one, Ending.DONE) for one in claimed]) == [Settled.DONE] * len(claimed)
    login = Served(logged_in_to_each(cluster, Rights(NAMESPACE, bridge=True, cluster=True)))
    cluster.configure({"notify-keyspace-events": "Exe"})
    with cluster.client() as client, bridging(login, recorder, beat_s=0.1) as bridge:
        client.sadd(f"{NAMESPACE}:shards", "default/0/1")
        until(lambda: bridge.stats().events is True)
