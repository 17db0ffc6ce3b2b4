"""Runs the Lua scripts: their text, keys and arguments, what may be sent again, and what Redis's errors mean here."""

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import (
    AskError,
    ClusterError,
    InvalidResponse,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    TryAgainError,
)
from redis.retry import Retry

from duecourse.adapters.redis import texts
from duecourse.adapters.redis.connect import Client, drop_idle, learn, node_of, open_client
from duecourse.adapters.redis.keys import Keys
from duecourse.adapters.redis.lines import execute, execute_ahead, is_plain
from duecourse.adapters.redis.wire import Argument
from duecourse.errors import DuecourseError, StoreFull, StoreMisused, StoreUnavailable
from duecourse.ports.clock import Clock

T = TypeVar("T")

CODE = re.compile(r"(?:^|-)(OOM|READONLY|MISCONF|NOREPLICAS|BUSY) ")
"""The code of an error that is told by its text alone: inside a script, up to 6.2."""

UNKNOWN = re.compile(r"unknown command", re.IGNORECASE)
"""How a server before 7.0 answers EVALSHA_RO; the error has no type of its own."""
NOT_ALONE, UNREGISTERED, OVERRIDDEN, RESHARDED = -7, -8, -9, -10
ELSEWHERE = (AskError, TryAgainError)
"""A cluster's answers (MovedError is an AskError) to what it did not do, for the key is, or comes to be, elsewhere."""
REDIRECTS_S = (0.0, 0.05, 0.1, 0.2, 0.4)
"""How long to wait before what was sent elsewhere is sent again."""
IDLE_S = 5.0
"""After how long without a command the pooled connections are dropped rather than trusted."""
WAIT_MS = 1_000
"""How long replicas have to take what was written."""

AWAY = (redis.ConnectionError, redis.TimeoutError, RedisClusterException)
_AGAIN = Retry(ExponentialBackoff(cap=0.5, base=0.05), retries=1, supported_errors=AWAY)


Request: TypeAlias = tuple[Sequence[str], Sequence[Argument]]
"""What a verb is asked: the tenants whose keys it declares, its own arguments."""

Read: TypeAlias = Callable[[int, Any], Any]
"""Makes something of a script's answer to the request at a place."""


READS = frozenset({"coming", "held_back", "outlook", "page", "stats"})
"""The verbs that write nothing."""


class Script(NamedTuple):
    """One verb's script, by its SHA-1 as EVALSHA wants it."""

    sha: str
    text: str
    reads: bool


def connect(url: str) -> Client:
    """A client that gives up after 3 s, and never sends a command again by itself: a claim is not repeatable.

    With the repeats that `Scripts.call` makes, what is away is known within 10 s: less than any function's timeout.
    Raises StoreUnavailable where a cluster's map cannot be had.
    """
    return open_client(url, socket_timeout=3, socket_connect_timeout=2)


@cache
def load(verb: str) -> Script:
    """The script of one verb."""
    text = texts.script(verb)
    script = Script(hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), text, verb in READS)
    _verbs[script.sha] = verb
    return script


_verbs: dict[str, str] = {}
"""The verbs of this process's scripts, by their SHA-1."""


def resident(sha: str) -> str | None:
    """The text of a verb's script for a process that keeps it (Bundle.resident), by the SHA-1 of the other."""
    return texts.resident(_verbs[sha]) if sha in _verbs else None


def translate(error: Exception) -> DuecourseError:
    """What one of Redis's errors means here."""
    if _is(error, OutOfMemoryError, "OOM"):
        return StoreFull()
    if isinstance(error, (*AWAY, *ELSEWHERE, ReadOnlyError, ClusterError)) or CODE.search(str(error)):
        return StoreUnavailable(f"The store does not answer: {error}")
    if isinstance(error, InvalidResponse):
        return StoreMisused(f"The server at the store's address is not a Redis: {error}")
    return StoreMisused(f"The store rejected the command: {error}")


def _is(error: Exception, kind: type[Exception], code: str) -> bool:
    told = CODE.search(str(error))
    return isinstance(error, kind) or bool(told and told[1] == code)


class Scripts:
    """The verbs' scripts on one client."""

    def __init__(self, client: Client, travel: Clock | None) -> None:
        self.client = client
        self.travel = travel
        self._used_at = time.time()
        self.outages = 0
        """How often a server did not answer, or was no primary any more: what it had may be lost."""
        # redis-py would ask a cluster for the keys of such a call, at each call.
        self._reads_apart = isinstance(client, redis.Redis)

    def run(
        self,
        verb: str,
        keys: Keys,
        tenants: Sequence[str],
        arguments: Sequence[Argument],
        *,
        count: int | str,
        again: bool,
        replicas: int = 0,
    ) -> Any:
        """The script's answer: a list, NOT_ALONE, UNREGISTERED or RESHARDED. `count`: the queue's shards.

        `again`: it may be sent again where its reply was lost.
        With `replicas`, only once so many have what it wrote. Raises StoreUnavailable, StoreFull, StoreMisused.
        """
        answer = self.evaluate(verb, *self.prepare(keys, tenants, arguments, count), again=again, replicas=replicas)
        if answer == OVERRIDDEN:
            raise StoreMisused("the clock is overridden, and this shard's clock does not travel")
        return answer

    def prepare(
        self, keys: Keys, tenants: Sequence[str], arguments: Sequence[Argument], count: int | str
    ) -> tuple[int, Sequence[Argument]]:
        """How many of a script's arguments are keys, and all of them."""
        clock = str(self.travel.now()) if self.travel else ""
        declared = (*keys.fixed, *map(keys.due, tenants))
        return len(declared), (*declared, clock, keys.head, count, *arguments)

    def run_ahead(
        self, verb: str, keys: Keys, requests: Callable[[], Iterable[Request]], read: Read, *, count: int
    ) -> list[Any] | None:
        """What `read` makes of the script's answers to several requests: while the server does one, it reads the one
        before, and the next is made and sent.

        What may not be sent again must not come this way. None where the server is not known beforehand.
        """
        if self.travel or not is_plain(self.client):
            return None
        sha = load(verb).sha

        def command(tenants: Sequence[str], arguments: Sequence[Argument]) -> Sequence[Argument]:
            declared = (*keys.fixed, *map(keys.due, tenants))
            return ("EVALSHA", sha, len(declared), *declared, "", keys.head, count, *arguments)

        def send() -> list[Any]:
            answers = execute_ahead(self.client, (command(*request) for request in requests()))
            return [read(place, answer) for place, answer in enumerate(answers)]

        return self.call(send, again=True)

    def evaluate(self, name: str, keys: int, every: Sequence[Argument], *, again: bool, replicas: int = 0) -> Any:
        """What one script answers to `every`, of which the first `keys` are keys; for the rest see `run`."""
        return self.call(lambda: self._send(load(name), keys, every, replicas), again=again)

    def call(self, command: Callable[[], T], *, again: bool) -> T:
        """Send one command; after a long pause on fresh connections, for a frozen process's may have died unseen."""
        # By the wall's clock: while a process is frozen, the monotonic one may stand still.
        used_at, self._used_at = self._used_at, time.time()
        if abs(self._used_at - used_at) > IDLE_S:
            drop_idle(self.client)
        try:
            try:
                return command()
            except AWAY:
                if not again:
                    raise
                self.outages += 1
                return _AGAIN.call_with_retry(command, lambda _error: None)
        except (redis.RedisError, RedisClusterException) as error:
            self.outages += isinstance(error, AWAY)
            if _is(error, ReadOnlyError, "READONLY"):
                drop_idle(self.client)  # the address may lead elsewhere by now
                self.outages += 1
            raise translate(error) from error

    def read(self, *commands: Callable[[Any], object]) -> list[Any]:
        """The answers to commands put on a pipeline, asked again where they are lost.

        No transaction: MULTI is refused where memory is short.
        """

        def send() -> list[Any]:
            with self.client.pipeline(transaction=False) as pipe:
                for command in commands:
                    command(pipe)
                return list(pipe.execute())

        return self.call(send, again=True)

    def how(self, script: Script) -> str:
        """The command by which a script is run: one that writes nothing by one that lets nothing be written."""
        return "EVALSHA_RO" if script.reads and self._reads_apart else "EVALSHA"

    def _send(self, script: Script, count: int, every: Sequence[Argument], replicas: int) -> Any:
        evaluate, how = partial(self._evaluate, count, every, replicas), self.how(script)
        try:
            return evaluate(how, script.sha)
        except NoScriptError:
            return evaluate(how.replace("SHA", ""), script.text)
        except redis.ResponseError as error:
            if how == "EVALSHA" or not (isinstance(error, NoPermissionError) or UNKNOWN.match(str(error))):
                raise
            self._reads_apart = False
            return self._send(script, count, every, replicas)

    def _evaluate(self, count: int, every: Sequence[Argument], replicas: int, how: str, script: str) -> Any:
        if not replicas:
            return execute(self.client, how, script, count, *every)
        for pause in REDIRECTS_S:
            try:
                return self._evaluate_and_wait((how, script, count, *every), str(every[0]), replicas)
            except ELSEWHERE as error:
                elsewhere = error
                time.sleep(pause)
                learn(self.client)
            except (*AWAY, ClusterError):
                learn(self.client)  # what is sent again, or comes next, goes to whoever has taken over
                raise
        raise elsewhere

    def _evaluate_and_wait(self, command: Sequence[Argument], key: str, replicas: int) -> Any:
        pipe = node_of(self.client, key).pipeline(transaction=False)  # WAIT speaks of its own connection's writes
        pipe.execute_command(*command)  # type: ignore[no-untyped-call]
        pipe.wait(replicas, WAIT_MS)
        answer, got = pipe.execute()
        if int(got) < replicas:
            raise StoreUnavailable(
                f"{got} of {replicas} replicas have the change: it may have been made, send it again"
            )
        return answer
