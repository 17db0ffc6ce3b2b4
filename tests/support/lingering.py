"""Lingering ticks on real servers: each with an engine of its own, as two functions' processes have."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from duecourse.app import App, Parts
from duecourse.ledger.connect import connect
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.watched_keys import Watch
from duecourse.ringing.linger import Linger
from duecourse.running.run import Kind
from duecourse.settings import Settings
from tests.support.drainer import NAMESPACE
from tests.support.engine import Lambda
from tests.support.redis_server import RedisServer

MARGIN_MS = 1_000


def countdown(seconds: float) -> Callable[[], int]:
    """The time that an invocation has left."""
    end = time.monotonic() + seconds
    return lambda: int((end - time.monotonic()) * 1000)


class Open:
    """The time that an invocation has left: enough, until the test says that it is over."""

    def __init__(self) -> None:
        self.is_over = False

    def __call__(self) -> int:
        return MARGIN_MS if self.is_over else 60_000


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
        ledger = Ledger(parts.enter_context(connect(server.url)), NAMESPACE)
        kinds = dict.fromkeys(["noop", *given.targets], kind)
        app = App(given, Parts(ledger=ledger, kinds=kinds, invoker=Lambda(), brokers={}))
        parts.callback(app.close)
        app.get_ready()  # as a tick is by its sweep, before most of the rings
        linger = Linger(app, remaining_ms or countdown(linger_ms / 1000 + 10))
        parts.callback(linger.stop)
        linger.start()
        yield linger
        linger.stay_until_over()
