"""Redis's commands and Lua scripts in this process: each is done as a whole or not at all."""

import fnmatch
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import redis
from redis.client import Pipeline
from redis.connection import ConnectionPool
from redis.exceptions import NoScriptError, ResponseError
from sortedcontainers import SortedList

from duecourse.base.times import Clock
from duecourse.errors import StoreInUse, StoreMisused
from duecourse.ledger.script_calls import cached_script

if TYPE_CHECKING:
    from duecourse.ledger.embedded.leveldb import LevelDisk

# Hashes and sorted sets, as in Redis; writes of a script that failed can be undone.

HASH, SET = b"h", b"s"
"""Kinds of keys."""
ValueLocation: TypeAlias = tuple[bytes, bytes, bytes]
"""Place of one value: the kind of its key, the key, and the field or member."""


class SortedSet:
    """Members by their scores, and in the order of (score, member)."""

    __slots__ = ("_moved", "_order", "scores")

    def __init__(self) -> None:
        self.scores: dict[bytes, float] = {}
        self._order: SortedList[tuple[float, bytes]] = SortedList()
        self._moved: dict[bytes, float | None] = {}
        """Members that were written since `_order` was last read, each with its score there."""

    def put(self, items: Iterable[tuple[bytes, float | None]], before: dict[bytes, float | None]) -> int:
        """Set the scores of members, None to remove one; answers how many were there.

        `before` receives the first score of each.
        """
        scores, moved, found = self.scores, self._moved, 0
        for member, score in items:
            old = scores.get(member)
            before.setdefault(member, old)
            found += old is not None
            if old != score:
                moved.setdefault(member, old)
                if score is None:
                    del scores[member]
                else:
                    scores[member] = score
        return found

    @property
    def order(self) -> "SortedList[tuple[float, bytes]]":
        """The pairs in their order, sorted when they are read: many sets are written far more often."""
        if self._moved:
            self._sort()
        return self._order

    def _sort(self) -> None:
        moved, scores = self._moved, self.scores
        if len(moved) > FEW and REBUILD * len(moved) > len(scores):
            self._order = SortedList(zip(scores.values(), scores, strict=True))
        else:
            for member, score in moved.items():
                if score is not None:
                    self._order.remove((score, member))
                if member in scores:
                    self._order.add((scores[member], member))
        self._moved = {}


FEW, REBUILD = 8, 4
"""A set of which more than so few members were written, and at least one in so many, is sorted as a whole."""
NO_FIELDS: dict[bytes, bytes] = {}
NO_MEMBERS = SortedSet()


class Keyspace:
    """Keys and their values; a key without fields or members is absent. `undo` reverts all writes since `keep`."""

    def __init__(self) -> None:
        self._hashes: dict[bytes, dict[bytes, bytes]] = {}
        self._sets: dict[bytes, SortedSet] = {}
        # What was written since `keep`, as it was before, by kind and key: a Place for each would cost more to make.
        self._before: dict[tuple[bytes, bytes], dict[bytes, Any]] = {}

    def hash(self, key: bytes) -> dict[bytes, bytes]:
        """The fields of a hash, to be read only."""
        return self._hashes.get(key, NO_FIELDS)

    def set(self, key: bytes) -> SortedSet:
        """A sorted set, to be read only."""
        return self._sets.get(key, NO_MEMBERS)

    def keys(self) -> Iterator[bytes]:
        """Every key."""
        yield from self._hashes
        yield from self._sets

    def write(self, key: bytes, *items: tuple[bytes, bytes | None]) -> int:
        """Set fields of a hash, None to remove one; answers how many were there."""
        before = self._before.setdefault((HASH, key), {})
        fields, found = self._hashes.setdefault(key, {}), 0
        for field, value in items:
            old = fields.get(field)
            before.setdefault(field, old)
            found += old is not None
            if value is not None:
                fields[field] = value
            elif old is not None:
                del fields[field]
        if not fields:
            del self._hashes[key]
        return found

    def rank(self, key: bytes, *items: tuple[bytes, float | None]) -> int:
        """Set members' scores in a sorted set, None to remove one; answers how many were there."""
        before = self._before.setdefault((SET, key), {})
        members = self._sets.get(key)
        if members is None:
            members = self._sets[key] = SortedSet()
        found = members.put(items, before)
        if not members.scores:
            del self._sets[key]
        return found

    def delete(self, key: bytes) -> bool:
        """Remove a key; answers whether there was one."""
        fields = self.write(key, *dict.fromkeys(self.hash(key)).items())
        members = self.rank(key, *dict.fromkeys(self.set(key).scores).items())
        return bool(fields or members)

    def written(self) -> dict[ValueLocation, bytes | float | None]:
        """Places written since the last `keep` or `undo`, each with its present value, None if it is removed."""
        found: dict[ValueLocation, bytes | float | None] = {}
        for (kind, key), before in self._before.items():
            values: Mapping[bytes, Any] = self.hash(key) if kind == HASH else self.set(key).scores
            found |= {(kind, key, name): values.get(name) for name in before}
        return found

    def before(self) -> dict[ValueLocation, bytes | float | None]:
        """The same places, each with its value before."""
        return {(*key, name): old for key, before in self._before.items() for name, old in before.items()}

    def keep(self) -> None:
        """Accept the writes: `undo` no longer reverts them."""
        self._before = {}

    def undo(self) -> None:
        """Revert the writes since the last `keep`."""
        for (kind, key), before in self._before.items():
            put: Callable[..., int] = self.write if kind == HASH else self.rank
            put(key, *before.items())
        self.keep()


# The commands of Redis that the store and its scripts use, on a keyspace in this process.
#
# Each takes its arguments as bytes and answers as Redis does (https://redis.io/docs/latest/commands/): whole numbers,
# bytes, None, or a list of them. No key expires.

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
        return _range_reply(found.order.islice(max(first, 0), max(last + 1, 0)), options)

    def zcount(self, key: bytes, least: bytes, most: bytes) -> Reply:
        first, last = _by_score(self._space.set(key), least, most)
        return max(last - first, 0)

    def zrangebyscore(self, key: bytes, least: bytes, most: bytes, *options: bytes) -> Reply:
        found = self._space.set(key)
        return _range_reply(found.order.islice(*_limited(_by_score(found, least, most), options)), options)

    def zlexcount(self, key: bytes, least: bytes, most: bytes) -> Reply:
        first, last = _by_name(self._space.set(key), least, most)
        return max(last - first, 0)

    def zrangebylex(self, key: bytes, least: bytes, most: bytes, *options: bytes) -> Reply:
        found = self._space.set(key)
        return _range_reply(found.order.islice(*_limited(_by_name(found, least, most), options)), ())

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


def _range_reply(found: Iterable[tuple[float, bytes]], options: Sequence[bytes]) -> Reply:
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


# Lua scripts run in this process, as Redis runs them.

LIBRARIES = Path(__file__).parent / "libraries.lua"


class ScriptFailed(Exception):
    """A script ended by an error of its own."""


_compiled: dict[str, bytes] = {}
"""Lua's compiled form of each script of ours that a ledger of this process has run, by its SHA-1."""
MANY = 4_000
"""The most values that cross between Python and Lua in one piece: more overflow the stack of Lua."""


class Lua:
    """A Lua 5.1 with the commands as `redis.call`, and the libraries that Redis has."""

    def __init__(self, commands: Commands) -> None:
        lua = _lua()
        self._failure: type[Exception] = lua.LuaError
        self._runtime = lua.LuaRuntime(
            encoding=None, register_eval=False, register_builtins=False, unpack_returned_tuples=True
        )
        self._commands = commands.by_name
        self._scripts: dict[str, Any] = {}
        self._scope, self._table = self._runtime.globals(), self._runtime.table_from
        self._table_type = type(self._scope)
        libraries = self._runtime.execute(LIBRARIES.read_bytes())
        for name in (b"struct", b"cjson", b"bit"):
            self._scope[name] = libraries[name]
        call = libraries[b"calling"](self._call)
        self._scope[b"redis"] = self._table({b"call": call, b"pcall": call})
        self._parts = libraries[b"parts"]

    def load(self, sha: str, text: bytes) -> None:
        """Compile a script; one of ours makes its modules here, once. Raises ScriptFailed if its text is not Lua."""
        kept = cached_script(sha)
        try:
            self._scripts[sha] = self._resident(sha, kept) if kept else self._runtime.compile(text)
        except self._failure as error:
            raise ScriptFailed(str(error)) from error

    def _resident(self, sha: str, text: str) -> Any:
        """A script of ours with its modules made. A process with many ledgers, as a test suite, compiles it once."""
        if sha not in _compiled:
            _compiled[sha] = self._scope[b"string"][b"dump"](self._runtime.compile(text.encode()))
        return self._runtime.compile(_compiled[sha])()

    def has(self, sha: str) -> bool:
        """Presence of a script with this SHA-1."""
        return sha in self._scripts

    def run(self, sha: str, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Reply:
        """Answer of a script. Raises ScriptFailed, or the error of a command that the script called."""
        self._scope[b"KEYS"], self._scope[b"ARGV"] = self._table(keys), self._table(arguments)
        try:
            return self._reply(self._scripts[sha]())
        except self._failure as error:
            raise ScriptFailed(str(error)) from error

    def _call(self, name: bytes, *arguments: Any) -> Any:
        """Run a command for a script; lupa raises its error as it is where the script was started.

        A short list is returned as True and its values, for libraries.lua to put into a table.
        """
        reply = self._commands[name](*[one if type(one) is bytes else number(one) for one in arguments])
        if type(reply) is list:
            values = [False if one is None else self._listed(one) if type(one) is list else one for one in reply]
            return (True, *values) if len(values) < MANY else self._table(values)
        return False if reply is None else reply

    def _listed(self, reply: list[Reply]) -> Any:
        return self._table([False if one is None else self._listed(one) if type(one) is list else one for one in reply])

    def _reply(self, value: Any) -> Reply:
        """Value of Lua in the form of a Redis answer: fractions are cut off, true is 1, false and nil are None."""
        if type(value) is self._table_type:
            return [one if type(one) is bytes else self._reply(one) for one in self._values(value)]
        if value is None or type(value) is bytes:
            return value
        return int(value) or (0 if value is not False else None)

    def _values(self, table: Any) -> Iterable[Any]:
        """Values of a list, in one piece where they are few enough."""
        values: Iterable[Any] = self._parts(table)[1:] if 0 < len(table) < MANY else table.values()
        return values


@cache
def _lua() -> Any:
    try:
        from lupa import lua51  # type: ignore[import-untyped]
    except ImportError as error:
        raise StoreMisused("memory:// and leveldb:// need Lua: pip install 'duecourse[embedded]'") from error
    return lua51


# Redis commands and scripts in this process: one at a time, each done as a whole or not at all.

Argument = str | bytes | int | float
SCRIPTS = (b"EVAL", b"EVALSHA", b"EVAL_RO", b"EVALSHA_RO")


class Server:
    """Commands on one keyspace; `listeners` receive each published message, on the thread that published it."""

    def __init__(self, clock: Clock, disk: "LevelDisk | None" = None) -> None:
        """Raises as `disk.load`."""
        self.listeners: set[Callable[[bytes, bytes], None]] = set()
        self._lock = Lock()
        self._pid = os.getpid()
        self._space = Keyspace()
        self._disk = disk
        self._unsure: dict[ValueLocation, bytes | float | None] = {}
        """Places that the disk may have otherwise since a write failed, with their values here, for the next write."""
        self._messages: list[tuple[bytes, bytes]] = []
        self._commands = Commands(self._space, clock, lambda *message: self._messages.append(message))
        self._lua = Lua(self._commands)
        if disk:
            disk.load(self._space)
            self._space.keep()

    def run(self, command: Sequence[Argument]) -> Reply:
        """Answer of one command or script.

        Raises ResponseError, StoreInUse in a forked child, or the error of the disk; then nothing has changed.
        """
        self._check_process()
        name, *arguments = [
            one if isinstance(one, bytes) else one.encode() if isinstance(one, str) else number(one) for one in command
        ]
        with self._lock:
            if self._disk:
                self._disk.check()
            try:
                reply = self._script(name, arguments) if name in SCRIPTS else self._commands.by_name[name](*arguments)
                self._save()
            except BaseException as error:
                self._space.undo()
                self._messages.clear()
                if isinstance(error, (KeyError, TypeError, ValueError, ScriptFailed)):
                    raise ResponseError(f"{name.decode()}: {error}") from error
                raise
            self._deliver()
        return reply

    def _check_process(self) -> None:
        """Return if this is the process that opened the ledger.

        A child's copy would take in tasks that nobody else sees, and two would write to the disk.
        """
        if self._pid != os.getpid():
            raise StoreInUse(
                f"The ledger is open in process {self._pid}, which forked this one, and only one process can have it: "
                "use it there, or give DUECOURSE_STORE a Redis"
            )

    def close(self) -> None:
        """Close the disk."""
        if self._disk:
            self._disk.close()

    def _script(self, name: bytes, arguments: Sequence[bytes]) -> Reply:
        text, count, *every = arguments
        by_sha = name.startswith(b"EVALSHA")
        sha = text.decode() if by_sha else hashlib.sha1(text, usedforsecurity=False).hexdigest()
        if not self._lua.has(sha):
            if by_sha:
                raise NoScriptError("No matching script")
            self._lua.load(sha, text)
        reply = self._lua.run(sha, every[: int(count)], every[int(count) :])
        if name.endswith(b"_RO") and self._space.written():
            raise ResponseError("Write commands are not allowed from read-only scripts")
        return reply

    def _save(self) -> None:
        if self._disk and (writes := self._space.written()):
            try:
                self._disk.save(self._unsure | writes)
            except BaseException:
                # The disk may have it all the same: the next write must put that right.
                self._unsure |= self._space.before()
                raise
            self._unsure.clear()
        self._space.keep()

    def _deliver(self) -> None:
        while self._messages:
            message = self._messages.pop(0)
            for heard in list(self.listeners):  # a copy: a listener may come or go meanwhile
                heard(*message)


# redis-py's client, whose commands are calls of the server in this process.


class NoPool(ConnectionPool):
    """Connections that are never made."""


class EmbeddedRedis(redis.Redis):
    """A client of `server`."""

    def __init__(self, server: Server) -> None:
        super().__init__(connection_pool=NoPool(protocol=2))
        self._server = server

    def execute_command(self, *command: Any, **options: Any) -> Any:
        """Answer of the server, in the types of redis-py. Raises as Server.run."""
        reply = self._server.run(command)
        options.pop("keys", None)  # which is redis-py's own, for its cache
        shown = self.response_callbacks.get(command[0])  # type: ignore[no-untyped-call]
        return shown(reply, **options) if shown else reply

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> "EmbeddedPipeline":
        """Commands to be sent together."""
        made = EmbeddedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        made.of = self
        return made


class EmbeddedPipeline(Pipeline):
    """Commands that run in order when `execute` is called."""

    of: EmbeddedRedis

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Answers in order; with `raise_on_error` False, a ResponseError takes the place of its answer."""
        commands, self.command_stack = self.command_stack, []
        return [self._answer(command, options, raise_on_error) for command, options in commands]

    def _answer(self, command: tuple[Any, ...], options: dict[str, Any], raise_on_error: bool) -> Any:
        try:
            return self.of.execute_command(*command, **options)
        except redis.ResponseError as error:
            if raise_on_error:
                raise
            return error
