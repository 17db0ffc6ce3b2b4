"""A Redis login that may publish, or set keys of its own: it can make a bell ring early, and no bell late."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from duecourse.ledger.redis_bells import RedisBells
from tests.support.bridges import NAMESPACE, BellSetter, Recorder, bell_setter, bridging
from tests.support.redis_server import FLOOR, RedisServer, need
from tests.support.wait import until

DIGITS = [b"9" * 16, b"9" * 4_301, b"1" * 100_000, b"-1", b"0x10", "٣".encode(), b"1.5", b"", b"junk", b" 5"]
CHANNELS = [
    b"test:{a\nb/0}:head", b"test:{\r\n}:head", b"test:{default/0}:head\n", b"test:{}:head", b"test:{\xff\xfe/0}:head",
    b"test:{" + b"x" * 100_000 + b"}:head", b"test:{canary/zz}:head", b"test:{../../0}:head", b"test:{a/b/c}:head",
    b"__keyevent@0__:expired", b"__keyevent@0__:evicted", b"test:{default/0}:bell",
]  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(need(FLOOR)) as server:
        yield server


@pytest.fixture
def bells(server: RedisServer) -> Iterator[BellSetter]:
    with bell_setter(server) as man:
        man.redis.flushall()
        yield man


@contextmanager
def flooding(server: RedisServer, *messages: tuple[bytes, bytes]) -> Iterator[None]:
    """Another login that publishes these again and again."""
    over = threading.Event()

    def flood() -> None:
        with server.client() as client:
            while not over.is_set():
                with client.pipeline(transaction=False) as pipe:
                    for channel, text in messages:
                        pipe.publish(channel, text)
                    pipe.execute()

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_no_message_ends_a_bridge_and_each_bell_still_rings(server: RedisServer, bells: BellSetter) -> None:
    recorder, bell = Recorder(), bells.shard("default/0")
    with bridging(server, recorder) as bridge:
        for channel in (b"test:{default/0}:head", *CHANNELS):
            for text in (*DIGITS, b"test:{default/0}:bell", b"test:{a\nb/0}:bell", b"5"):
                bells.redis.publish(channel, text)
        until(lambda: recorder.of(bell))
        before = len(recorder.of(bell))
        bells.hang(bell, 150)
        until(lambda: len(recorder.of(bell)) > before)
        assert not bridge.wait_ended(0)
    for invocation in recorder.invocations:
        assert set(invocation.event) == {"source", "version", "rings"}


@pytest.mark.parametrize("events", [True, False])
def test_a_flood_of_forged_heads_makes_no_bell_late(server: RedisServer, bells: BellSetter, events: bool) -> None:
    """A beat is a minute here, so that none but the timer can find the bell."""
    recorder, bell = Recorder(), bells.shard("default/0")
    head = b"test:{default/0}:head"
    with bridging(server, recorder, events=events, beat_s=60.0):
        until(lambda: recorder.of(bell))
        before = len(recorder.of(bell))
        at = bells.hang(bell, 1_000)
        with flooding(server, (head, b"99999999999999"), (head, b"0")):
            until(lambda: len(recorder.of(bell)) > before, seconds=30)
    assert recorder.of(bell)[before].at >= at - 1_000
    assert bells.now() < at + 30_000


def test_heads_of_shards_that_are_not_there_are_forgotten(server: RedisServer, bells: BellSetter) -> None:
    recorder, bell = Recorder(), bells.shard("default/0")
    with bridging(server, recorder, beat_s=0.2) as bridge:
        for n in range(5_000):
            bells.redis.publish(f"test:{{made-up-{n}/0}}:head", b"99999999999999")
        until(lambda: len(bridge._sessions.pending_bells()) > 1)
        until(lambda: len(bridge._sessions.pending_bells()) <= 1)
        before = len(recorder.of(bell))
        bells.hang(bell, 100)
        until(lambda: len(recorder.of(bell)) > before)


def test_a_flood_of_other_programs_expiries_delays_no_bell_for_long(server: RedisServer, bells: BellSetter) -> None:
    recorder, bell = Recorder(), bells.shard("default/0")
    with bridging(server, recorder):
        until(lambda: recorder.of(bell))
        before = len(recorder.of(bell))
        expired = b"__keyevent@0__:expired"
        with flooding(server, *((expired, b"other\n%d" % n) for n in range(100))):
            bells.hang(bell, 200)
            until(lambda: len(recorder.of(bell)) > before, seconds=30)


@pytest.mark.parametrize("text", [b"junk", b"9" * 5_000, b"-1", b"\xff", b"1" * 16])
def test_a_bell_with_a_text_that_is_no_time_is_none(server: RedisServer, bells: BellSetter, text: bytes) -> None:
    bell = bells.shard("default/0")
    bells.redis.set(bell, text)
    with closing(RedisBells(server.url, NAMESPACE)) as own:
        assert own.primaries()[""].look([bell]).hung == [None]
