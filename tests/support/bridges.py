"""Bridges on real servers: an invoker that remembers, bells hung by hand, a bridge that is stopped with its test."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from duecourse.bridge import Bridge
from duecourse.ledger.connect import Client
from duecourse.ledger.redis_bells import RedisBells
from duecourse.ledger.watched_keys import Pattern, Watchlist
from duecourse.ringing.bridge import LambdaRingHandler
from duecourse.ringing.warming import Warming
from tests.support.drainer import ENVIRONMENT
from tests.support.project import ROOT
from tests.support.redis_server import RedisServer

NAMESPACE = "test"
LAYER = ROOT / "layers" / "core"


class Invocation(NamedTuple):
    """One invocation: which bells it was for, and when it came (epoch ms)."""

    at: float
    keys: list[str]
    event: dict[str, Any]


class Recorder:
    """An invoker that remembers every invocation and answers what `answer` makes of its keys."""

    def __init__(self, answer: Callable[[list[str]], Any] = lambda _: {"claimed": 0, "backlog": 0}) -> None:
        self._answer = answer
        self._lock = threading.Lock()
        self.invocations: list[Invocation] = []

    def invoke(self, function: str, event: Any) -> Any:
        assert function == "on_expired"
        keys = [ring["key"] for ring in event["rings"]]
        with self._lock:
            self.invocations.append(Invocation(time.time() * 1000, keys, event))
        return self._answer(keys)

    def send(self, function: str, event: Any) -> None:
        raise AssertionError((function, event))

    def of(self, bell: str) -> list[Invocation]:
        """The invocations for one bell."""
        with self._lock:
            return [invocation for invocation in self.invocations if bell in invocation.keys]


class BellSetter:
    """Hangs bells as the ledger's scripts do."""

    def __init__(self, client: Client) -> None:
        self.redis: Any = client

    def shard(self, name: str) -> str:
        """A new shard `<queue>/<index>`; returns its bell."""
        self.redis.sadd(f"{NAMESPACE}:shards", f"{name}/1")
        return f"{NAMESPACE}:{{{name}}}:bell"

    def now(self) -> int:
        seconds, micros = self.redis.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def hang(self, bell: str, in_ms: int, *, tell: bool = True) -> int:
        """Hang a bell `in_ms` from the server's now; returns when it goes."""
        at = self.now() + in_ms
        self.redis.set(bell, at, pxat=at)
        if tell:
            self.redis.publish(bell.removesuffix("bell") + "head", at)
        return at


@contextmanager
def bell_setter(server: RedisServer) -> Iterator[BellSetter]:
    """A BellSetter whose connections end with the test."""
    with server.client() as client:
        yield BellSetter(client)


class Served(Protocol):
    """What has a store's URL: a server, a cluster, a Sentinel's service."""

    @property
    def url(self) -> str:
        """Where it is."""


@contextmanager
def bridging(
    server: Served,
    invoker: Any,
    *,
    in_flight: int = 4,
    beat_s: float = 10.0,
    ready: bool = True,
    events: bool = True,
    watched: Sequence[str] = (),
    warming: Warming | None = None,
) -> Iterator[Bridge]:
    """A bridge on the server, ready unless told otherwise, and stopped at the end."""
    bells = RedisBells(server.url, NAMESPACE, events=events, watched=Watchlist([Pattern(text) for text in watched]))
    bridge = Bridge(
        bells, LambdaRingHandler(invoker, "on_expired"), in_flight=in_flight, beat_s=beat_s, warming=warming
    )
    bridge.start()
    try:
        if ready:
            assert bridge.wait_ready(30)
        yield bridge
        assert not bridge.wait_ended(0), "one of the bridge's threads died"
    finally:
        assert bridge.stop()


@contextmanager
def bridge_process(
    server: Served, url: str, *, layer: Path = LAYER, **settings: str
) -> Iterator["subprocess.Popen[str]"]:
    """A bridge of its own process, ready; killed at the end. It invokes at `url`; `settings` are DUECOURSE_*.

    `layer` is where its code is.
    """
    given = {name: value for name, value in ENVIRONMENT.items() if not name.startswith(("DUECOURSE_", "AWS_"))}
    given |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "eu-central-1"}
    given |= {"DUECOURSE_STORE": server.url, "DUECOURSE_NAMESPACE": NAMESPACE, "AWS_ENDPOINT_URL_LAMBDA": url}
    given |= {"PYTHONPATH": str(layer)}
    given |= {f"DUECOURSE_{name}": value for name, value in settings.items()}
    command = [sys.executable, "-W", "error", "-m", "duecourse.bridge"]
    with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline().startswith("bridge ready")
            yield process
        finally:
            process.kill()
