"""The same requests on every server: the same bytes in every key, and the same text in every command of a script.

Servers write a number of Lua as text in different ways: 0.1 is 0.10000000000000001 before Redis 7.2, and 1e17 has an
exponent there. So a script gives a command whole numbers below 1e17, or text that it made itself.
"""

import ast
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
import redis

from duecourse.ledger.connect import connect
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.embedded.leveldb import LevelDisk
from duecourse.ledger.keys import keys_of
from duecourse.ledger.many_tasks import TaskFilter
from duecourse.ledger.operation_types import Delivery, KeyedRequest, Lease, Move
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import Rate
from duecourse.ledger.task import Ending, OnDuplicate, RetryPolicy
from tests.support import schedules
from tests.support.clock import START, HandClock
from tests.support.ledger import SHARD, ending, lease_of, new
from tests.support.redis_server import REDIS, VALKEY, RedisServer
from tests.support.wait import until

Words: TypeAlias = tuple[bytes, ...]
LAST = 253_402_300_799_999
"""The last instant that a task can be due at."""
LINE = re.compile(rb'\+\d+\.\d+ \[0 (\S+)\] (".*")')
ARGUMENT = re.compile(rb'"(?:[^"\\]|\\.)*"')
ODD = ["-", "due:x", "é b"]
DATA = {"payload": '{"n":0.1,"big":1e17}', "state": '"é"', "group": "g", "notify": "http://a.example/"}
REQUESTS = {b"EVALSHA", b"EVAL", b"HSET", b"SADD"}
"""Requests that write; the others are the client's own greetings, or look at what is there."""
UNORDERED = {b"HSCAN", b"TIME"}
"""Commands that differ between two runs at one server: the order of a hash is random, and time passes."""


@contextmanager
def watched(server: RedisServer) -> Iterator[Callable[[], list[tuple[bytes, Words]]]]:
    """All that the server runs meanwhile, each with its source (`lua` for a script's) and its words."""
    with socket.socket(socket.AF_UNIX) as line, server.client() as client:
        line.connect(str(server.socket))
        lines = line.makefile("rb")
        line.sendall(b"MONITOR\r\n")
        assert lines.readline() == b"+OK\r\n"
        seen: list[bytes] = []
        reader = threading.Thread(target=lambda: seen.extend(iter(lines.readline, b"")))
        reader.start()

        def told() -> list[tuple[bytes, Words]]:
            client.echo("the end")
            until(lambda: seen and b'"ECHO" "the end"' in seen[-1])
            return [_parsed(one) for one in seen[:-1]]

        try:
            yield told
        finally:
            line.shutdown(socket.SHUT_RDWR)
            reader.join()
            lines.close()


def _parsed(line: bytes) -> tuple[bytes, Words]:
    found = LINE.match(line)
    assert found, line
    return found[1], tuple(ast.literal_eval(f"b{word.decode('latin-1')}") for word in ARGUMENT.findall(found[2]))


def contents(client: Any, like: dict[bytes, Any] | None = None) -> dict[bytes, Any]:
    """Every key with its value, of its type in `like`; scores as numbers, for their text is each server's own."""
    read = {
        dict: client.hgetall,
        list: lambda key: client.zrange(key, 0, -1, withscores=True),
        set: client.smembers,
    }
    types = {b"hash": dict, b"zset": list, b"set": set}
    kinds = {key: type(value) for key, value in (like or {}).items()}
    return {key: read[kinds.get(key) or types[client.type(key)]](key) for key in client.scan_iter("*")}


def work(ledger: Ledger, client: redis.Redis, clock: HandClock) -> None:
    """Every verb of the ledger, with numbers at their bounds."""
    ledger.configure("default", {"rate": Rate(7, 1_001), "max_running": 50, "tenant_max_running": 9, "priority": 9})
    ledger.configure("default", {"tenant_adds_per_minute": 700, "tenant_max_pending": 333, "tenant_max_bytes": 99_999})
    ledger.add([new("first")])
    client.hset(keys_of("duecourse", SHARD).meta, "fence", 2**48 - 1_000_000)
    for tenant in ODD:
        ledger.add(
            [new(id, tenant=tenant, **DATA, delay_ms=late) for id, late in zip("abcd", (0, 1, 333), strict=False)]
        )
        ledger.add([new("far", tenant=tenant, delay_ms=LAST - clock.now(), deadline_ms=LAST - clock.now())])
        ledger.add([new("a", tenant=tenant, on_duplicate=OnDuplicate.REPLACE, payload=f'"{"x" * 5_000}"')])
    retry = RetryPolicy(max_attempts=3, backoff_ms=333)
    ledger.add([new(f"r{n}", kind="report", retry=retry) for n in range(20)])
    ledger.sweep(SHARD, retention_ms=200)
    clock.advance(333)
    ledger.add([new(id, delay_ms=1) for id in ("late", "later")])
    lease_and_end(ledger, clock)
    change(ledger, clock)
    repeat(ledger, clock)
    remember(ledger, clock)


def lease_and_end(ledger: Ledger, clock: HandClock) -> None:
    handing = {"report": Delivery("lambda:report", 3, 60_000)}
    for _ in range(4):
        tasks = ledger.claim(SHARD, 5, lease_ms=777, deliveries=handing).tasks
        delivered = [task for task in tasks if task.target]
        ledger.begin(SHARD, [Lease.of(task) for task in delivered], 60, [b"n" * 8] * len(delivered))
        for task, how in zip(tasks, [Ending.DONE, Ending.AGAIN, Ending.RETRY, Ending.DROP, Ending.DONE], strict=False):
            ledger.save(SHARD, lease_of(task), '{"at":0.1}')
            ledger.extend(SHARD, [lease_of(task)], 1_234)
            ledger.settle(SHARD, [ending(task, how, result='{"r":1e17}', delay_ms=7)])
        clock.advance(1_001)
    clock.advance(60_000)
    ledger.sweep(SHARD, retention_ms=200, dead_retention_ms=100_000)


def change(ledger: Ledger, clock: HandClock) -> None:
    ledger.move("default", [Move("b", None, 9), Move("c", LAST, None)], "é b")
    ledger.cancel("default", ["c"], tenant="due:x")
    ledger.take("default", "c", "-", lease_ms=50)
    clock.advance(60)
    ledger.sweep(SHARD, retention_ms=200)
    ledger.replay("default", [f"r{n}" for n in range(20)], "-", deadlines_ms=[LAST - clock.now()] * 20)
    ledger.throttle(SHARD)
    ledger.page("default", TaskFilter(), None, 100)
    ledger.group("default", "g")
    ledger.stats(SHARD)


def repeat(ledger: Ledger, clock: HandClock) -> None:
    at = clock.now() + schedules.MINUTE
    for id in ("s", "t"):
        schedules.put(ledger, id, at)
    clock.advance(schedules.MINUTE)
    schedules.fire(ledger, "s", at)
    for one in schedules.due(ledger):
        ledger.fire(SHARD, [schedules.step(one)])
    ledger.drop_schedule("default", "t")
    clock.advance(schedules.MINUTE)
    ledger.sweep(SHARD, retention_ms=200)


def remember(ledger: Ledger, clock: HandClock) -> None:
    sent = KeyedRequest("-", "key", b"f" * 32)
    ledger.idempotency().begin(sent, b"1" * 8, 16_000)
    ledger.idempotency().end(sent, b"1" * 8, b"answer")
    ledger.in_flight().admit("-", "q", 3, 1_333)
    ledger.rounds().note([1, 2], clock.now())
    clock.advance(86_400_001)
    ledger.idempotency().prune()
    ledger.sweep(SHARD, retention_ms=200)


class WorkOnServer(NamedTuple):
    """Requests, the commands that their scripts ran, and every key at the end."""

    requests: list[Words]
    ran: set[Words]
    kept: dict[bytes, Any]


@pytest.fixture(scope="module")
def asked(server_of: Callable[[str], RedisServer]) -> WorkOnServer:
    """The work on the oldest Redis."""
    server, clock = server_of(REDIS[0]).emptied(), HandClock(START)
    with server.client() as client, connect(server.url) as connected, watched(server) as told:
        client.script_flush()
        work(Ledger(connected, travel=clock), client, clock)
        seen = told()
        requests = [words for source, words in seen if source != b"lua" and words[0] in REQUESTS]
        return WorkOnServer(requests, by_scripts(seen), contents(client))


def by_scripts(seen: list[tuple[bytes, Words]]) -> set[Words]:
    """The commands of scripts, the order of fields aside, which is that of a table in Lua."""
    ran = [words for source, words in seen if source == b"lua" and words[0] not in UNORDERED]
    return {(*words[:2], *sorted(words[2:])) for words in ran}


def replay(client: redis.Redis, requests: list[Words]) -> None:
    """Ask the same again; a script that is not known is as unknown as it was the first time."""
    for words in requests:
        with suppress(redis.exceptions.NoScriptError):
            client.execute_command(*words)


@pytest.mark.parametrize("name", [*REDIS[1:], VALKEY])
def test_scripts_give_every_server_the_same_text_in_every_command(
    name: str, asked: WorkOnServer, server_of: Callable[[str], RedisServer]
) -> None:
    server = server_of(name).emptied()
    with server.client() as client, watched(server) as told:
        client.script_flush()
        replay(client, asked.requests)
        assert by_scripts(told()) == asked.ran
        assert contents(client) == asked.kept
    assert len(asked.ran) > 300


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "leveldb"])
def test_a_store_in_this_process_keeps_the_same_bytes_as_redis(
    durable: bool, asked: WorkOnServer, tmp_path: Path
) -> None:
    disk = LevelDisk(str(tmp_path / "ledger")) if durable else None
    with closing(EmbeddedLedger(HandClock(), disk=disk)) as ledger:
        replay(ledger.client, asked.requests)
    disk = LevelDisk(str(tmp_path / "ledger")) if durable else None
    with closing(EmbeddedLedger(HandClock(), disk=disk) if durable else ledger) as again:
        assert contents(again.client, asked.kept) == asked.kept


@pytest.mark.parametrize("name", [*REDIS, VALKEY])
def test_whole_numbers_below_1e17_are_one_text_on_every_server(
    name: str, server_of: Callable[[str], RedisServer]
) -> None:
    numbers = [0, 1, -1, 2**53, 10**17 - 16, -(10**16), START]
    with server_of(name).emptied().client() as client:
        for number in numbers:
            client.eval("redis.call('SET', KEYS[1], tonumber(ARGV[1]))", 1, "a", number)
            assert client.get("a") == b"%d" % number
