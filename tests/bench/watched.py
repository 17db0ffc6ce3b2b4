"""How late, and whether at all, Redis tells that plain keys with a TTL expired: what watched keys can promise."""

import time
from collections.abc import Sequence

import redis

from duecourse.base.json_text import Json
from duecourse.bridge import Bridge
from duecourse.ledger.bells import BellEvent, BellMessage
from duecourse.ledger.connect import connect
from duecourse.ledger.redis_bells import RedisBells
from duecourse.ledger.watched_keys import ExpiredKey, Pattern, Watchlist
from duecourse.ringing.bridge_event import Ring
from tests.bench.figures import Figure, lateness
from tests.bench.server import BenchServer
from tests.bench.stage import Measured

COUNTS = (1_000, 10_000, 100_000)
WATCH_S = 60.0
HOUR_MS = 3_600_000
BURST_MS = 10_000
FOREIGN = 50_000


def figures(server: BenchServer, _pending: int) -> Measured:
    """Keys due evenly over an hour and over ten seconds, watched for a minute; then keys that nobody watches."""
    with connect(server.url) as client:
        for over_ms, words in ((HOUR_MS, "an hour"), (BURST_MS, "10 s")):
            for count in COUNTS:
                client.flushall()
                yield [_measure(server, client, count, over_ms, f"{count:,} keys due over {words}")]
        client.flushall()
        yield [_cost_of_strangers(server, client)]


class Notes:
    """What takes the keys, at once."""

    def __init__(self) -> None:
        self.late: list[int] = []

    def drain(self, _rings: Sequence[Ring]) -> Json:
        """There are no tasks."""

    def note(self, expired: Sequence[ExpiredKey]) -> Json:
        """Write down how late each was heard; it is named for when it was due."""
        self.late += [one.heard_at - int(one.key.split(b"-")[1]) for one in expired]


def _measure(server: BenchServer, client: redis.Redis, count: int, over_ms: int, name: str) -> Figure:
    notes = Notes()
    bridge = _bridge(server, notes)
    start = _now(client) + 3_000
    _set_keys(client, [start + over_ms * n // count for n in range(count)])
    while _now(client) < start + WATCH_S * 1000:
        time.sleep(0.1)
    bridge.stop()
    due = sum(over_ms * n // count <= WATCH_S * 1000 for n in range(count))
    return Figure(name, measured=f"{lateness(notes.late)}; {len(notes.late) / due:.0%} of {due:,} in {WATCH_S:g} s")


def _cost_of_strangers(server: BenchServer, client: redis.Redis) -> Figure:
    """The time to read one message of a key that is not watched, from the socket on; no bridge's threads beside it."""
    watched = Watchlist([Pattern(f"timer{n}-{{due}}-{{n}}") for n in range(10)])
    bells = RedisBells(server.url, "duecourse", watched=watched)
    hearing = bells.primaries()[""].subscribe()
    pipe = client.pipeline(transaction=False)
    for n in range(FOREIGN):
        pipe.publish(bells.channel(BellEvent.EXPIRED), f"session:{n}")
    pipe.execute()
    client.publish("duecourse:{default/0}:head", 7)
    began = time.perf_counter()
    assert isinstance(hearing.hear(60), BellMessage), "what was sent last"
    spent = time.perf_counter() - began
    hearing.close()
    bells.close()
    name = "reading an expiry that nobody watches"
    return Figure(name, "", "thousands a second", f"{spent / FOREIGN * 1e6:.1f} µs")


def _bridge(server: BenchServer, notes: Notes) -> Bridge:
    watched = Watchlist([Pattern("timer-{due}-{n}")])
    bridge = Bridge(RedisBells(server.url, "duecourse", watched=watched), notes)
    bridge.start()
    assert bridge.wait_ready(30)
    return bridge


def _now(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000


def _set_keys(client: redis.Redis, due: Sequence[int]) -> None:
    for first in range(0, len(due), 1_000):
        pipe = client.pipeline(transaction=False)
        for n, at in enumerate(due[first : first + 1_000], first):
            pipe.set(f"timer-{at}-{n}", "x", pxat=at)
        pipe.execute()
