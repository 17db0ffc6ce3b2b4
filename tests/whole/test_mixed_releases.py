"""An earlier commit and this tree on one Redis, as they are while a deployment rolls: nothing is lost."""

import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

import pytest

from tests.support.api import Api
from tests.support.bridges import NAMESPACE, bridge_process
from tests.support.http_server import answering
from tests.support.matrix import LENGTHY, MATRIX
from tests.support.redis_ledger import check
from tests.support.redis_server import RedisServer, need, newest
from tests.support.two_releases import Receiver, Release, Releases, both_releases, kill, stopped
from tests.support.wait import until

pytestmark = [MATRIX, LENGTHY]
COUNT = 4
LONG_S = 120.0
KINDS = ["webhook", "own", "crossed"]
SETTINGS = {"LEASE": "PT10S", "ON_EXPIRED_FUNCTION": "OnExpiredFunction"}


@pytest.fixture(scope="module")
def shared() -> Iterator[RedisServer]:
    with RedisServer(need(newest())) as server:
        yield server


@pytest.fixture(scope="module")
def releases(shared: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Releases]:
    with both_releases(shared, tmp_path_factory.mktemp("releases")) as releases:
        yield releases


@pytest.fixture
def server(shared: RedisServer, releases: Releases) -> RedisServer:
    """A server whose ledger the earlier release has begun."""
    emptied, later = shared.emptied(), {"id": "first", "kind": "webhook", "payload": {"url": "http://a.example"}}
    assert releases.old.api.call("POST", "/tasks", {**later, "delay": "P1D"})[0] == 201
    return emptied


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    with answering(receiver) as service:
        receiver.url = service.url
        yield receiver
        receiver.gate.set()


class Callers:
    """What callers of one release ask for, and callers of the other change."""

    def __init__(self, name: str, mine: Api, other: Api, receiver: Receiver) -> None:
        self._name = name
        self._mine = mine
        self._other = other
        self._receiver = receiver
        self._lock = threading.Lock()
        self.to_run: list[str] = []
        self.cancelled: list[str] = []

    def ask(self, kind: str) -> None:
        """Each of what can be asked for, at instants that follow each other."""
        for n in range(COUNT):
            soon = f"PT{n / 10}S"
            told = self._id(kind, "told", n)
            self._add(told, kind, delay=soon, notify_done={"url": f"{self._receiver.url}/ended"})
            twice = self._id(kind, "twice", n)
            self._add(twice, kind, "twice", delay=soon)
            moved = self._id(kind, "moved", n)
            self._add(moved, kind)
            assert self._other.call("PATCH", f"/tasks/{moved}", {"delay": soon})[0] == 200
            replaced = self._id(kind, "replaced", n)
            self._add(replaced, kind, "never")
            add(self._other, self._receiver, replaced, kind, delay=soon, on_duplicate="replace")
            cancelled = self._id(kind, "cancelled", n)
            self._add(cancelled, kind)
            assert self._other.call("DELETE", f"/tasks/{cancelled}")[0] == 204
            with self._lock:
                self.to_run += [told, twice, moved, replaced]
                self.cancelled.append(cancelled)

    def _id(self, kind: str, what: str, n: int) -> str:
        return f"{self._name}-{kind}-{what}-{n}"

    def _add(self, id: str, kind: str, path: str = "", *, delay: str = "PT1H", **fields: object) -> None:
        add(self._mine, self._receiver, id, kind, path, delay=delay, **fields)


def add(api: Api, receiver: Receiver, id: str, kind: str, path: str = "", **fields: object) -> None:
    """Add a task whose work calls the receiver."""
    payload = {"url": f"{receiver.url}/{path}", **({"body": {"id": id}} if kind == "webhook" else {})}
    retry = {"backoff": "PT0.1S", "max_attempts": 20}
    status, answer = api.call("POST", "/tasks", {"id": id, "kind": kind, "payload": payload, "retry": retry, **fields})
    assert status in (200, 201), answer


def states(api: Api, ids: Sequence[str]) -> set[str]:
    """How these tasks stand, as one release sees them."""
    return {(api.task(id) or {}).get("state", "unknown") for id in ids}


def kill_all(bridges: Sequence["subprocess.Popen[str]"], working: Sequence[Release]) -> None:
    """End what rings and what works outright."""
    for bridge in bridges:
        bridge.kill()
    for functions in working:
        kill(functions, "OnExpiredFunction")
        kill(functions, "ownFunction")


def play(
    server: RedisServer,
    releases: Releases,
    receiver: Receiver,
    pairs: Sequence[tuple[Release, Release]],
) -> list[str]:
    """Callers of both releases beside each other, and kills; answers the tasks that ran.

    Of each pair, the bridge of the first serves the functions of the second.
    """
    old, new = (release.api for release in releases)
    asking = [Callers("old", old, new, receiver), Callers("new", new, old, receiver)]
    with ExitStack() as running, ThreadPoolExecutor(8) as threads:
        begin = [
            partial(bridge_process, server, functions.stack.lambda_url, layer=bridge.layer, **SETTINGS)
            for bridge, functions in pairs
        ]
        bridges = [running.enter_context(bridge()) for bridge in begin]
        asked = [threads.submit(callers.ask, kind) for callers in asking for kind in KINDS]
        until(lambda: len(receiver.runs) > COUNT, seconds=LONG_S)  # there was no tick yet: these were bells
        kill_all(bridges, [functions for _, functions in pairs])
        for bridge in begin:
            running.enter_context(bridge())
        for future in asked:
            future.result()
        to_run = [id for callers in asking for id in callers.to_run]
        cancelled = [id for callers in asking for id in callers.cancelled]

        def ran() -> bool:
            for _, functions in pairs:
                functions.stack.tick()
            return states(new, to_run) == {"done"}

        until(ran, seconds=LONG_S, every=0.5)
        until(lambda: all(receiver.ends[id] for id in to_run if "-told-" in id), seconds=LONG_S, every=0.1)
    assert states(old, cancelled) == states(new, cancelled) == {"cancelled"}
    assert set(receiver.runs) == set(to_run)
    with server.client() as client:
        check(client, namespace=NAMESPACE)
    return to_run


def test_old_functions_with_a_new_bridge_lose_nothing(
    server: RedisServer, releases: Releases, receiver: Receiver
) -> None:
    ran = play(server, releases, receiver, [(releases.new, releases.old)])
    assert states(releases.old.api, ran) == {"done"}


def test_new_functions_with_an_old_bridge_lose_nothing(
    server: RedisServer, releases: Releases, receiver: Receiver
) -> None:
    play(server, releases, receiver, [(releases.old, releases.new)])


def test_both_beside_each_other_lose_nothing(server: RedisServer, releases: Releases, receiver: Receiver) -> None:
    pairs = [(releases.new, releases.old), (releases.old, releases.new)]
    play(server, releases, receiver, pairs)


@pytest.mark.usefixtures("server")
def test_a_function_with_the_old_layer_settles_what_new_functions_hand_it(
    releases: Releases, receiver: Receiver
) -> None:
    add(releases.new.api, receiver, "t", "crossed")

    def ended() -> bool:
        releases.new.stack.tick()
        return states(releases.new.api, ["t"]) == {"done"}

    until(ended, seconds=LONG_S, every=0.5)
    assert receiver.runs["t"] >= 1
    assert states(releases.old.api, ["t"]) == {"done"}


@pytest.mark.usefixtures("server")
def test_old_callers_see_what_new_functions_ended(releases: Releases, receiver: Receiver) -> None:
    add(releases.new.api, receiver, "t", "own")
    releases.new.stack.tick()
    until(lambda: states(releases.new.api, ["t"]) == {"done"}, seconds=LONG_S)
    assert states(releases.old.api, ["t"]) == {"done"}


@contextmanager
def at_work(releases: Releases, receiver: Receiver) -> Iterator[None]:
    """The task `t` being worked by a new function, which waits for the gate."""
    receiver.gate.clear()
    add(releases.new.api, receiver, "t", "own")
    releases.new.stack.tick()
    until(lambda: receiver.runs["t"], seconds=LONG_S)
    yield
    receiver.gate.set()


@contextmanager
def on_its_way(releases: Releases, receiver: Receiver) -> Iterator[None]:
    """The task `t` on its way to a new function, whose processes are stopped."""
    with stopped(releases.new, "ownFunction"):
        add(releases.new.api, receiver, "t", "own")
        releases.new.stack.tick()
        assert states(releases.new.api, ["t"]) == {"leased"}
        yield


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("held", [at_work, on_its_way])
def test_what_new_functions_hold_is_seen_and_taken_back_by_old_ones(
    releases: Releases, receiver: Receiver, held: Callable[[Releases, Receiver], AbstractContextManager[None]]
) -> None:
    with held(releases, receiver):
        assert states(releases.old.api, ["t"]) == {"leased"}
        kill(releases.new, "ownFunction")

    def ran() -> bool:
        releases.old.stack.tick()
        return states(releases.old.api, ["t"]) == {"done"}

    until(ran, seconds=LONG_S, every=0.5)
