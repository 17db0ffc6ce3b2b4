"""The commands of Redis that the store and its scripts use, on a keyspace in this process.

Each takes its arguments as bytes and answers as Redis does (https://redis.io/docs/latest/commands/): whole numbers,
bytes, None, or a list of them. No key expires.
"""

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from duecourse.adapters.embedded.keyspace import Keyspace, SortedSet
from duecourse.ports.clock import Clock

Reply: TypeAlias = "int | bytes | list[Reply] | None"
Command: TypeAlias = Callable[..., Reply]

WITHSCORES, LIMIT, MATCH, COUNT = b"WITHSCORES", b"LIMIT", b"MATCH", b"COUNT"
LOWEST, BEYOND = b"", b"\xff" * 1024
"""Names before and after every member of a ledger's set."""
NEXT = b"\0"
"""Ending of the next name in order."""
Span: TypeAlias = tuple[int, int]
"""The first rank, and the rank after the last."""


def number(value: float) -> bytes:
    """A number as Redis writes it."""
    return b"%d" % value if value == value // 1 and abs(value) < 1e17 else b"%.17g" % value


class Commands:
    """The commands by their names, in upper case: `by_name[b"HGET"](b"key", b"field")`."""

    def __init__(self, keyspace: Keyspace, clock: Clock, publish: Callable[[bytes, bytes], None]) -> None:
        self._space = keyspace
        self._clock = clock
        self._publish = publish
        self._scans: dict[bytes, list[bytes]] = {}
        self.by_name: dict[bytes, Command] = {
            name.strip("_").upper().encode(): getattr(self, name) for name in dir(self) if not name.startswith("_")
        }

    # Hashes

    def hget(self, key: bytes, field: bytes) -> Reply:
        return self._space.hash(key).get(field)

    def hmget(self, key: bytes, *fields: bytes) -> Reply:
        return list(map(self._space.hash(key).get, fields))

    def hgetall(self, key: bytes) -> Reply:
        return [part for item in self._space.hash(key).items() for part in item]

    def hkeys(self, key: bytes) -> Reply:
        return list(self._space.hash(key))

    def hlen(self, key: bytes) -> Reply:
        return len(self._space.hash(key))

    def hexists(self, key: bytes, field: bytes) -> Reply:
        return int(field in self._space.hash(key))

    def hscan(self, key: bytes, cursor: bytes, *options: bytes) -> Reply:
        at, count = int(cursor), int(options[options.index(COUNT) + 1])
        if not at or key not in self._scans:  # a cursor of an earlier process begins anew
            at, self._scans[key] = 0, list(self._space.hash(key))
        fields, found = self._scans[key], self._space.hash(key)
        rows: list[Reply] = [
            part for field in fields[at : at + count] if field in found for part in (field, found[field])
        ]
        if at + count < len(fields):
            return [b"%d" % (at + count), rows]
        del self._scans[key]
        return [b"0", rows]

    def hset(self, key: bytes, *items: bytes) -> Reply:
        return len(items) // 2 - self._space.write(key, *zip(items[::2], items[1::2], strict=True))

    def hsetnx(self, key: bytes, field: bytes, value: bytes) -> Reply:
        if field in self._space.hash(key):
            return 0
        self._space.write(key, (field, value))
        return 1

    def hdel(self, key: bytes, *fields: bytes) -> Reply:
        return self._space.write(key, *((field, None) for field in fields))

    def hincrby(self, key: bytes, field: bytes, by: bytes) -> Reply:
        total = int(self._space.hash(key).get(field, b"0")) + int(by)
        self._space.write(key, (field, b"%d" % total))
        return total

    # Sorted sets

    def zadd(self, key: bytes, *items: bytes) -> Reply:
        pairs = zip(items[1::2], map(float, items[::2]), strict=True)
        return len(items) // 2 - self._space.rank(key, *pairs)

    def zrem(self, key: bytes, *members: bytes) -> Reply:
        return self._space.rank(key, *((member, None) for member in members))

    def zcard(self, key: bytes) -> Reply:
        return len(self._space.set(key).scores)

    def zscore(self, key: bytes, member: bytes) -> Reply:
        score = self._space.set(key).scores.get(member)
        return None if score is None else number(score)

    def zmscore(self, key: bytes, *members: bytes) -> Reply:
        return [self.zscore(key, member) for member in members]

    def zrank(self, key: bytes, member: bytes) -> Reply:
        found = self._space.set(key)
        score = found.scores.get(member)
        return None if score is None else found.order.index((score, member))

    def zrange(self, key: bytes, start: bytes, stop: bytes, *options: bytes) -> Reply:
        found = self._space.set(key)
        size = len(found.scores)
        if start == stop:  # most often the first or the last alone
            at = int(start)
            if not -size <= at < size:
                return []
            score, member = found.order[at]
            return [member, number(score)] if options else [member]
        first, last = (at + size if at < 0 else at for at in (int(start), int(stop)))
        return _shown(found.order.islice(max(first, 0), max(last + 1, 0)), options)

    def zcount(self, key: bytes, least: bytes, most: bytes) -> Reply:
        first, last = _by_score(self._space.set(key), least, most)
        return max(last - first, 0)

    def zrangebyscore(self, key: bytes, least: bytes, most: bytes, *options: bytes) -> Reply:
        found = self._space.set(key)
        return _shown(found.order.islice(*_limited(_by_score(found, least, most), options)), options)

    def zlexcount(self, key: bytes, least: bytes, most: bytes) -> Reply:
        first, last = _by_name(self._space.set(key), least, most)
        return max(last - first, 0)

    def zrangebylex(self, key: bytes, least: bytes, most: bytes, *options: bytes) -> Reply:
        found = self._space.set(key)
        return _shown(found.order.islice(*_limited(_by_name(found, least, most), options)), ())

    # Sets: sorted ones whose scores are all 0

    def sadd(self, key: bytes, *members: bytes) -> Reply:
        return len(members) - self._space.rank(key, *((member, 0.0) for member in members))

    srem, scard = zrem, zcard

    def sismember(self, key: bytes, member: bytes) -> Reply:
        return int(member in self._space.set(key).scores)

    def smembers(self, key: bytes) -> Reply:
        return list(self._space.set(key).scores)

    def sscan(self, key: bytes, _cursor: bytes, *options: bytes) -> Reply:
        return _scanned(self._space.set(key).scores, options)

    # Keys and the rest

    def get(self, _key: bytes) -> Reply:
        return None  # the one string of a ledger is a bell that expires, and here none hangs so

    def del_(self, *keys: bytes) -> Reply:
        return sum(map(self._space.delete, keys))

    def scan(self, _cursor: bytes, *options: bytes) -> Reply:
        return _scanned(self._space.keys(), options)

    def publish(self, channel: bytes, message: bytes) -> Reply:
        self._publish(channel, message)
        return 1

    def time(self) -> Reply:
        seconds, millis = divmod(self._clock.now(), 1000)
        return [b"%d" % seconds, b"%d" % (millis * 1000)]

    def ping(self) -> Reply:
        return b"PONG"


def _scanned(names: Iterable[bytes], options: Sequence[bytes]) -> Reply:
    """The names that match, all at once."""
    found: list[Reply] = [*fnmatch.filter(names, options[options.index(MATCH) + 1])]
    return [b"0", found]


def _shown(found: Iterable[tuple[float, bytes]], options: Sequence[bytes]) -> Reply:
    """Members, each with its score behind it where the options ask for that."""
    if WITHSCORES in options:
        return [part for score, member in found for part in (member, number(score))]
    return [member for _, member in found]


def _limited(span: Span, options: Sequence[bytes]) -> Span:
    """The part of a span that the option LIMIT leaves."""
    first, last = span
    if LIMIT in options:
        at = options.index(LIMIT)
        first += int(options[at + 1])
        last = min(last, first + int(options[at + 2]))
    return first, max(first, last)


def _by_score(found: SortedSet, least: bytes, most: bytes) -> Span:
    """The span between two scores; `(` before one leaves it out."""
    first = (float(least[1:]), BEYOND) if least.startswith(b"(") else (float(least), LOWEST)
    last = (float(most[1:]), LOWEST) if most.startswith(b"(") else (float(most), BEYOND)
    return found.order.bisect_left(first), found.order.bisect_left(last)


def _by_name(found: SortedSet, least: bytes, most: bytes) -> Span:
    """The span between two names, in a set whose scores are all 0; `(` before one leaves it out, `[` does not."""
    first = LOWEST if least == b"-" else least[1:] + (NEXT if least.startswith(b"(") else b"")
    last = BEYOND if most == b"+" else most[1:] + (NEXT if most.startswith(b"[") else b"")
    return found.order.bisect_left((0.0, first)), found.order.bisect_left((0.0, last))
