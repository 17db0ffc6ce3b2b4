"""The Redis of this process: lists between its commands and its scripts, and sets in their order."""

import random

import pytest
from redis.exceptions import ResponseError

from duecourse.ledger.embedded.in_process_redis import Commands, EmbeddedRedis, Keyspace, Lua, Server
from duecourse.ledger.embedded.ledger import SystemClock
from duecourse.ledger.keys import keys_of
from duecourse.ledger.script_calls import load
from duecourse.ledger.task import Shard

KEY = b"key"


@pytest.fixture
def client() -> EmbeddedRedis:
    return EmbeddedRedis(Server(SystemClock()))


@pytest.mark.parametrize("count", [0, 1, 2, 3_999, 4_000, 20_000])
def test_a_script_gets_and_answers_lists_of_any_length(client: EmbeddedRedis, count: int) -> None:
    names = [b"%05d" % n for n in range(count)]
    for start in range(0, count, 1_000):
        client.zadd("set", dict.fromkeys(names[start : start + 1_000], 1))
    text = "local found = redis.call('ZRANGE', KEYS[1], 0, -1) return { #found, found, { { 'in' } } }"
    assert client.eval(text, 1, "set") == [count, names, [[b"in"]]]


def test_what_a_hash_lacks_is_false_in_a_script_and_none_in_its_answer(client: EmbeddedRedis) -> None:
    client.hset("hash", "b", "2")
    text = "local found = redis.call('HMGET', KEYS[1], 'a', 'b', 'c') return { found[1] == false, found[2], found[3] }"
    assert client.eval(text, 1, "hash") == [1, b"2", None]


def test_a_set_stays_in_its_order_however_it_is_written_and_read() -> None:
    space, chance, scores = Keyspace(), random.Random(7), dict[bytes, float]()
    for _ in range(300):
        for _ in range(chance.choice((1, 3, 40, 200))):
            member, score = b"%d" % chance.randrange(400), chance.choice((None, 1.0, 2.0, 3.0))
            assert space.rank(KEY, (member, score)) == (member in scores)
            scores |= {member: score} if score is not None else {}
            if score is None:
                scores.pop(member, None)
        if chance.random() < 0.7:
            assert list(space.set(KEY).order) == sorted((score, member) for member, score in scores.items())


def test_a_failed_script_leaves_sets_in_the_order_of_before(client: EmbeddedRedis) -> None:
    client.zadd("set", {"a": 1, "b": 2, "c": 3})
    text = "redis.call('ZADD', 'set', 0, 'c', 9, 'd') redis.call('ZREM', 'set', 'a') error('no')"
    with pytest.raises(ResponseError, match="no"):
        client.eval(text, 0)
    assert client.zrange("set", 0, -1, withscores=True) == [(b"a", 1.0), (b"b", 2.0), (b"c", 3.0)]


def test_a_verb_makes_its_functions_once_and_not_at_each_run() -> None:
    """What is made is seen by the memory that it takes; a text that is no verb's is run as Redis runs it."""
    lua = Lua(Commands(Keyspace(), SystemClock(), lambda *_: None))
    keys, arguments = (
        [key.encode() for key in keys_of("duecourse", Shard()).fixed],
        [b"", b"", b"1", b"1", b"", b"1", b""],
    )
    lua._runtime.execute(b"collectgarbage('stop')")

    def taken(sha: str) -> float:
        lua.load(sha, load("sweep").text.encode())
        lua.run(sha, keys, arguments)
        before = lua._runtime.eval(b"collectgarbage('count')")
        lua.run(sha, keys, arguments)
        return float(lua._runtime.eval(b"collectgarbage('count')") - before)

    assert 0 < 2 * taken(load("sweep").sha) < taken("unknown")
