"""Lingering ticks on real servers: each with an engine of its own, as two functions' processes have."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from duecourse.adapters.redis.bells import RedisBells
from duecourse.adapters.redis.scripts import connect
from duecourse.adapters.redis.store import RedisStore
from duecourse.bridge.linger import Linger
from duecourse.domain.watch import Watch, Watchlist
from duecourse.engine.run import Kind
from duecourse.engine.threads import Threads
from duecourse.engine.watches import Watches
from duecourse.wire.events.rings import shards_of
from tests.support.drainer import NAMESPACE, drainer_of
from tests.support.redis_server import RedisServer

MARGIN_MS = 1_000
"""That of `drainer_of`."""


def countdown(seconds: float) -> Callable[[], int]:
    """The time that an invocation has left."""
    end = time.monotonic() + seconds
    return lambda: int((end - time.monotonic()) * 1000)


@contextmanager
def lingering(
    server: RedisServer,
    kind: Kind,
    *,
    linger_ms: int,
    remaining_ms: Callable[[], int] | None = None,
    events: bool = True,
    size: int = 4,
    lease_ms: int = 30_000,
    watches: Sequence[Watch] = (),
) -> Iterator[Linger]:
    """A lingering tick whose tasks do what `kind` says; it stays at the block's end, unless that failed."""
    with ExitStack() as parts:
        store = RedisStore(parts.enter_context(connect(server.url)), NAMESPACE)
        threads = Threads(size)
        parts.callback(threads.close)
        drainer = drainer_of(store, kind, threads, lease_ms)
        linger = Linger(
            RedisBells.from_url(
                server.url, NAMESPACE, events=events, watched=Watchlist([watch.pattern for watch in watches])
            ),
            lambda bells, left_ms: drainer.drain(shards_of(bells, NAMESPACE).shards, left_ms)._asdict(),
            lambda expired: Watches(store, NAMESPACE, watches).note(expired).added,
            remaining_ms or countdown(linger_ms / 1000 + 10),
            linger_ms=linger_ms,
            margin_ms=MARGIN_MS,
            in_flight=4,
        )
        parts.callback(linger.stop)
        linger.start()
        yield linger
        linger.stay_until_over()
