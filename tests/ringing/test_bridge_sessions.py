"""The bridge's sessions: one for each primary, begun and ended as primaries come and go, none waiting for another."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue

import pytest

from duecourse.errors import StoreUnavailable
from duecourse.ledger.bells import BellEvent, BellMessage, BellTimes, KeyExpiry
from duecourse.ledger.task import RetryPolicy
from duecourse.ringing import listener, sessions
from duecourse.ringing.bridge_event import Ring
from duecourse.ringing.sessions import Sessions
from tests.support.wait import until


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "LOOK_S", 0.01)


class Ear:
    """Subscription to one primary, in memory."""

    def __init__(self, sounds: SimpleQueue[BellMessage]) -> None:
        self._sounds = sounds

    def hear(self, timeout: float) -> BellMessage | None:
        try:
            return self._sounds.get(timeout=min(timeout, 0.02))
        except Empty:
            return None

    def covers(self, _bells: Sequence[str]) -> bool:
        return True

    def close(self) -> None:
        pass


class Node:
    """Bells of one primary, in memory; while it is away no call of it returns."""

    events = True
    watches = False

    def __init__(self, *shards: str) -> None:
        self.canary = "canary"
        self.shards = list(shards)
        self.hung: dict[str, int] = {}
        self.answers = threading.Event()
        self.answers.set()
        self.closed = threading.Event()
        self._sounds: SimpleQueue[BellMessage] = SimpleQueue()

    def channel(self, what: BellEvent) -> str:
        return what

    def check_primary(self) -> None:
        self._answer()

    def enable_events(self) -> str:
        return ""

    def subscribe(self) -> "Ear":
        self._answer()
        return Ear(self._sounds)

    def known(self) -> list[str]:
        return self.shards

    def look(self, bells: Sequence[str]) -> BellTimes:
        self._answer()
        now = time.time() * 1000
        self.hung = {bell: at for bell, at in self.hung.items() if at >= now}
        return BellTimes(now, [self.hung.get(bell) for bell in bells])

    def try_canary(self) -> bool:
        self._answer()
        for what in (BellEvent.EXPIRED, BellEvent.HEAD):
            self._sounds.put(BellMessage(what, self.canary))
        return True

    def close(self) -> None:
        self.closed.set()

    def hang(self, bell: str, in_ms: float) -> None:
        self.hung[bell] = int(time.time() * 1000 + in_ms)
        self._sounds.put(BellMessage(BellEvent.HEAD, bell, self.hung[bell]))

    def _answer(self) -> None:
        if not self.answers.is_set():
            self.answers.wait(0.2)
            raise StoreUnavailable("Timeout reading from socket")


class Cluster:
    """The primaries of a ledger, by their names."""

    watches = False

    def __init__(self, **nodes: Node) -> None:
        self.changed = threading.Event()
        self.nodes = nodes
        self.owners: dict[str, str] = {}

    def channel(self, what: BellEvent) -> str:
        return what

    def primaries(self) -> Mapping[str, Node]:
        return dict(self.nodes)

    def owner_of(self, bell: str) -> str:
        return self.owners[bell]

    def close(self) -> None:
        for node in self.nodes.values():
            node.answers.set()


class Rung:
    """The rings of all sessions."""

    def __init__(self) -> None:
        self.rings: list[Ring] = []
        self.ready = threading.Event()

    def on_rings(self, rings: Sequence[Ring]) -> None:
        self.rings += rings

    def on_expiry(self, expiry: KeyExpiry) -> None:
        raise AssertionError(expiry)

    def on_ready(self) -> None:
        self.ready.set()

    def on_fault(self) -> None:
        pass

    def of(self, bell: str) -> list[str]:
        """The primaries whose timers rang for a bell."""
        return [ring.server for ring in self.rings if ring.key == bell]


@contextmanager
def keeping(cluster: Cluster, beat_s: float = 60.0) -> Iterator[tuple[Sessions, Rung]]:
    rung = Rung()
    kept = Sessions(cluster, rung, beat_s=beat_s)
    kept.start()
    try:
        yield kept, rung
    finally:
        kept.stop()
        cluster.close()
        kept.close()


def rings(rung: Rung, node: Node, bell: str) -> Callable[[], bool]:
    before = len(rung.of(bell))
    node.hang(bell, 20)
    return lambda: len(rung.of(bell)) > before


def test_a_primary_that_does_not_answer_keeps_only_its_own_bells_waiting() -> None:
    one, two = Node("a"), Node("b")
    cluster = Cluster(one=one, two=two)
    cluster.owners = {"a": "one", "b": "two"}
    with keeping(cluster) as (kept, rung):
        assert rung.ready.wait(30)
        until(lambda: rung.of("a") and rung.of("b"))
        two.answers.clear()
        for _ in range(5):
            until(rings(rung, one, "a"))
        rang = len(rung.of("b"))
        waits = rings(rung, two, "b")
        until(rings(rung, one, "a"))
        assert len(rung.of("b")) == rang
        two.answers.set()
        until(waits)
        assert set(rung.of("a")) == {"one"}
        assert set(rung.of("b")) == {"two"}
        assert kept.shards == 2


def test_it_is_ready_while_one_primary_is_away_from_the_beginning() -> None:
    one, two = Node("a"), Node("b")
    two.answers.clear()
    with keeping(Cluster(one=one, two=two)) as (kept, rung):
        assert rung.ready.wait(30)
        assert kept.shards == 1
        two.answers.set()
        until(lambda: rung.of("b"))
        until(lambda: kept.shards == 2)  # a sweep is counted after its rings


def test_it_is_not_ready_while_no_primary_answers() -> None:
    one = Node("a")
    one.answers.clear()
    with keeping(Cluster(one=one)) as (kept, rung):
        until(lambda: any(session.is_lost for session in kept.every()))
        assert not rung.ready.is_set()
        one.answers.set()
        assert rung.ready.wait(30)


def test_the_replica_that_takes_over_has_a_session_and_the_dead_primary_none(caplog: pytest.LogCaptureFixture) -> None:
    one, two = Node("a"), Node("b")
    cluster = Cluster(one=one, two=two)
    with keeping(cluster) as (kept, rung), caplog.at_level(logging.WARNING):
        until(lambda: rung.of("b"))
        two.answers.clear()
        taken_over = Node("b")
        cluster.nodes = {"one": one, "three": taken_over}
        cluster.changed.set()
        until(lambda: "three" in rung.of("b"))
        two.answers.set()
        assert two.closed.wait(30)
        assert len(kept.every()) == 2
    assert "the store's primaries are others now: one, three" in caplog.text


def test_a_lost_primarys_successor_is_looked_for_though_nothing_says_that_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        listener, "PAUSES", RetryPolicy(backoff_ms=60_000, max_backoff_ms=60_000)
    )  # one try, and no other
    two = Node("b")
    two.answers.clear()
    cluster = Cluster(one=Node("a"), two=two)
    with keeping(cluster) as (kept, rung):
        until(lambda: any(session.is_lost for session in kept.every()))
        until(lambda: not cluster.changed.is_set())
        cluster.nodes = {"one": cluster.nodes["one"], "three": Node("b")}
        until(lambda: "three" in rung.of("b"))


def test_a_bell_whose_slot_moves_is_rung_for_by_its_new_primary_alone() -> None:
    one, two = Node("a"), Node()
    cluster = Cluster(one=one, two=two)
    cluster.owners = {"a": "one"}
    with keeping(cluster) as (kept, rung):
        until(lambda: rung.of("a"))
        until(lambda: all(session.shards is not None for session in kept.every()))
        one.hang("a", 60_000)
        until(kept.pending_bells)
        cluster.owners["a"] = "two"
        two.hung["a"] = one.hung.pop("a")
        cluster.changed.set()
        until(lambda: [bell for bell, _ in kept._sessions["two"].timer.pending_bells()] == ["a"])
        until(lambda: not kept._sessions["one"].timer.pending_bells())
        until(rings(rung, two, "a"))
        assert rung.of("a")[-1] == "two"


def test_the_time_is_that_of_the_foremost_clock() -> None:
    class Ahead(Node):
        def look(self, bells: Sequence[str]) -> BellTimes:
            view = super().look(bells)
            return view._replace(now=view.now + 3_600_000)

    with keeping(Cluster(one=Node("a"), two=Ahead("b"))) as (kept, rung):
        assert rung.ready.wait(30)
        until(lambda: kept.now() > time.time() * 1000 + 3_000_000)
