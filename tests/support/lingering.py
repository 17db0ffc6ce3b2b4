"""Lingering ticks on real servers: each with an engine of its own, as two functions' processes have."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from duecourse.adapters.redis.connect import connect
from duecourse.adapters.redis.store import RedisStore
from duecourse.domain.watch import Watch
from duecourse.engine.run import Kind
from duecourse.lingering import Linger
from duecourse.outside import Parts
from duecourse.settings import Settings
from duecourse.wiring import App
from tests.support.drainer import NAMESPACE
from tests.support.engine import Lambda
from tests.support.redis_server import RedisServer

MARGIN_MS = 1_000


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
    given = Settings(
        store=server.url,
        namespace=NAMESPACE,
        targets={watch.kind: "inline" for watch in watches},
        parallel=size,
        lease_ms=lease_ms,
        margin_ms=MARGIN_MS,
        events="on" if events else "off",
        tick_linger_ms=linger_ms,
        watch=watches,
        warm_ms=0,
    )
    with ExitStack() as parts:
        store = RedisStore(parts.enter_context(connect(server.url)), NAMESPACE)
        kinds = dict.fromkeys(["noop", *given.targets], kind)
        app = App(given, Parts(store=store, kinds=kinds, invoker=Lambda(), brokers={}))
        parts.callback(app.close)
        app.get_ready()  # as a tick is by its sweep, before most of the rings
        linger = Linger(app, remaining_ms or countdown(linger_ms / 1000 + 10))
        parts.callback(linger.stop)
        linger.start()
        yield linger
        linger.stay_until_over()
