"""Runs the Lua scripts: their text, keys and arguments, what may be sent again, and what Redis's errors mean here."""

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeVar

import redis
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import ClusterDownError, NoScriptError, OutOfMemoryError, ReadOnlyError
from redis.retry import Retry

from duecourse.adapters.redis_keys import Keys
from duecourse.adapters.redis_wire import Argument
from duecourse.errors import DuecourseError, StoreFull, StoreMisused, StoreUnavailable
from duecourse.ports.clock import Clock

T = TypeVar("T")

CODE = re.compile(r"(?:^|-)(OOM|READONLY|MISCONF|NOREPLICAS|BUSY) ")
"""The code of an error that is told by its text alone: inside a script, up to 6.2."""

NOT_ALONE, UNREGISTERED = -7, -8
IDLE_S = 5.0
"""After how long without a command the pooled connections are dropped rather than trusted."""
WAIT_MS = 1_000
"""How long replicas have to take what was written."""
ENDS_NO_LEASE = frozenset({"add", "pause"})

AWAY = (redis.ConnectionError, redis.TimeoutError)
_AGAIN = Retry(ExponentialBackoff(cap=0.5, base=0.05), retries=1, supported_errors=AWAY)


class Script(NamedTuple):
    """One verb's script, by its SHA-1 as EVALSHA wants it."""

    sha: str
    text: str


def connect(url: str) -> redis.Redis:
    """A client that gives up after 3 s, and never sends a command again by itself: a claim is not repeatable.

    With the repeats that `Scripts.call` makes, what is away is known within 10 s: less than any function's timeout.
    """
    keepalive = {} if url.startswith("unix:") else {"socket_keepalive": True}
    return redis.Redis.from_url(
        url, protocol=2, socket_timeout=3, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0), **keepalive
    )


@cache
def load(verb: str) -> Script:
    """The script of one verb, with what it builds on."""
    folder = files("duecourse.adapters") / "lua"
    parts = ("prelude", verb) if verb in ENDS_NO_LEASE else ("prelude", "lease", verb)
    text = "\n".join((folder / f"{part}.lua").read_text() for part in parts)
    return Script(hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), text)


def translate(error: redis.RedisError) -> DuecourseError:
    """What one of Redis's errors means here."""
    code = CODE.search(str(error))
    if isinstance(error, OutOfMemoryError) or (code and code[1] == "OOM"):
        return StoreFull()
    if isinstance(error, (*AWAY, ReadOnlyError, ClusterDownError)) or code:
        return StoreUnavailable(f"The store does not answer: {error}")
    return StoreMisused(f"The store refuses: {error}")


class Scripts:
    """The verbs' scripts on one client."""

    def __init__(self, client: redis.Redis, travel: Clock | None) -> None:
        self.client = client
        self.travel = travel
        self._used_at = time.time()

    def run(
        self,
        verb: str,
        keys: Keys,
        tenants: Sequence[str],
        arguments: Sequence[Argument],
        *,
        again: bool,
        replicas: int = 0,
    ) -> Any:
        """The script's answer: a list, NOT_ALONE or UNREGISTERED.

        `again`: it may be sent again where its reply was lost.
        With `replicas`, only once so many have what it wrote. Raises StoreUnavailable, StoreFull, StoreMisused.
        """
        clock = str(self.travel.now()) if self.travel else ""
        every = (*keys.fixed, *map(keys.due, tenants), clock, keys.head, len(tenants), *tenants, *arguments)
        count = len(keys.fixed) + len(tenants)
        answer = self.call(lambda: self._send(load(verb), count, every, replicas), again=again)
        if isinstance(answer, int) and answer not in (NOT_ALONE, UNREGISTERED):
            raise StoreMisused("the clock is overridden, and this shard's clock does not travel")
        return answer

    def call(self, command: Callable[[], T], *, again: bool) -> T:
        """Send one command; after a long pause on fresh connections, for a frozen process's may have died unseen."""
        used_at, self._used_at = self._used_at, time.time()
        if abs(self._used_at - used_at) > IDLE_S:
            self.client.connection_pool.disconnect(inuse_connections=False)
        try:
            try:
                return command()
            except AWAY:
                if not again:
                    raise
                return _AGAIN.call_with_retry(command, lambda _error: None)
        except redis.RedisError as error:
            if "READONLY" in str(error) or isinstance(error, ReadOnlyError):
                self.client.connection_pool.disconnect(inuse_connections=False)  # the address may lead elsewhere by now
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

    def _send(self, script: Script, count: int, every: Sequence[Argument], replicas: int) -> Any:
        try:
            if replicas:
                return self._send_and_wait(script, count, every, replicas)
            return self.client.evalsha(script.sha, count, *every)
        except NoScriptError:
            self.client.script_load(script.text)
            return self._send(script, count, every, replicas)

    def _send_and_wait(self, script: Script, count: int, every: Sequence[Argument], replicas: int) -> Any:
        pipe = self.client.pipeline(transaction=False)  # WAIT speaks of its own connection's writes
        pipe.evalsha(script.sha, count, *every)
        pipe.wait(replicas, WAIT_MS)
        answer, got = pipe.execute()
        if int(got) < replicas:
            raise StoreUnavailable(f"{got} of {replicas} replicas have it: it may be added, send it again")
        return answer
