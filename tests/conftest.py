"""The fixtures of all tests, and what a file's name says of its tests.

`test_rules_*.py` runs on every store in turn; `test_http_*.py` has an App of this process. `make quick` leaves out what
is marked `slow`: what asks for a server or a stack, `tests/whole`, `test_attack_*.py`, and files that say so.
"""

import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis
import urllib3

from duecourse.app import App
from duecourse.ledger import script_calls
from duecourse.ledger.connect import connect
from duecourse.ledger.embedded import in_process_redis as embedded_server
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.sharding import Sharding
from duecourse.settings import parse
from duecourse_local.harness.rabbitmq_server import RabbitMq
from tests.support import open_sockets
from tests.support.api import Api
from tests.support.bridges import BellSetter, Recorder, bell_setter
from tests.support.callers import CallAs, Caller, token
from tests.support.clock import HandClock
from tests.support.kinds import Ok, Outbox, Web, answer
from tests.support.proxies import LossyProxy
from tests.support.rabbitmq import need_server
from tests.support.redis_cluster import ClusterServers
from tests.support.redis_server import EVERY, SERVERS, RedisServer, labelled, need, newest
from tests.support.requests import Answer, ask
from tests.support.stores import SHARDS, STORES, opened, whole
from tests.support.wired import Wire, wired_with

if TYPE_CHECKING:
    from duecourse_local.harness.stack import Stack

HERE = Path(__file__).parent
SLOW = {HERE / "whole", HERE / "examples"}
RUNNING = {"server", "server_of", "cluster_of", "rabbitmq", "stack"}
"""Fixtures that start processes."""
collect_ignore = ["whole/project"]  # a newcomer's, for the newcomer's own pytest

# A suite that was started in the background has Ctrl-C ignored, and would hand that on to the processes it stops by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart() -> None:
    """By now pytest has its own hook in place, to which ours adds."""
    open_sockets.watch()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: no round of the garbage collector goes through it, in no test's time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makemodule(module_path: Path) -> Generator[None, pytest.Module, pytest.Module]:
    """Each file, with what its name says."""
    module = yield
    if module_path.name.startswith("test_rules_"):
        module.add_marker(pytest.mark.usefixtures("whole_numbers"))
    elif module_path.name.startswith("test_http_"):
        module.add_marker(pytest.mark.usefixtures("app"))
    elif module_path.name.startswith("test_attack_") or module_path.parent in SLOW:
        module.add_marker(pytest.mark.slow)
    return module


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Stores in turn for the rules that hold on each; servers in turn, by the file's `REDIS_SERVERS` if it has them."""
    rules = metafunc.module.__name__.rpartition(".")[2].startswith("test_rules_")
    if rules and "kind_of_store" in metafunc.fixturenames:
        metafunc.parametrize("kind_of_store", STORES, indirect=True)
    if "redis_server" in metafunc.fixturenames:
        servers = getattr(metafunc.module, "REDIS_SERVERS", SERVERS)
        metafunc.parametrize("redis_server", servers, indirect=True, ids=labelled)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test that runs on a server as slow; set up the App of `test_http_*.py` first; put long files first."""
    for item in items:
        if isinstance(item, pytest.Function):
            if item.path.name.startswith("test_http_"):
                set_up_app_first(item)
            if runs_on_server(item):
                item.add_marker(pytest.mark.slow)
    put_longest_first(items)


def put_longest_first(items: list[pytest.Item]) -> None:
    """Order the files so that those with slow tests come first, the whole stack's before all.

    A process takes a file at a time: a long one at the end would be waited for by all others.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path.parent.name != "whole", item.path not in slow))


def set_up_app_first(item: pytest.Function) -> None:
    """Order the test's fixtures so that `app` is made before the others.

    Functions use the App that was made last. Another fixture of the test may make one with settings of its own, and
    that is the one to use.
    """
    item.fixturenames.sort(key=lambda name: name != "app")


def runs_on_server(item: pytest.Function) -> bool:
    """Return whether the test's store, or one of its fixtures, is a process."""
    chosen = getattr(item, "callspec", None)
    kind = chosen.params.get("kind_of_store", "") if chosen else ""
    return kind.startswith(("redis", "valkey")) or not RUNNING.isdisjoint(item.fixturenames)


@pytest.fixture(scope="session")
def server_of() -> Iterator[Callable[[str], RedisServer]]:
    """A running server of the version asked for, the same through the session."""
    with ExitStack() as running:

        @cache
        def start(version: str) -> RedisServer:
            return running.enter_context(RedisServer(need(version)))

        yield start


@pytest.fixture(scope="session")
def cluster_of() -> Iterator[Callable[[str], ClusterServers]]:
    """Six servers of the version asked for that are a cluster, the same through the session."""
    with ExitStack() as running:

        @cache
        def start(version: str) -> ClusterServers:
            return running.enter_context(ClusterServers(need(version)))

        yield start


@pytest.fixture
def cluster(cluster_of: Callable[[str], ClusterServers]) -> ClusterServers:
    """An empty cluster of three primaries with a replica each."""
    return cluster_of(newest()).emptied()


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMq]:
    """A RabbitMQ that a test may stop and start, the same through the session: its start takes seconds."""
    need_server()
    with RabbitMq(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@pytest.fixture
def redis_server(request: pytest.FixtureRequest, server_of: Callable[[str], RedisServer]) -> RedisServer:
    """An empty Redis server, of every version at hand in turn; Valkey among them where `REDIS_SERVERS` is EVERY."""
    return server_of(request.param).emptied()


@pytest.fixture(params=EVERY, ids=labelled)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A Redis server of the test's own, of every version at hand in turn, to be set and stopped at will."""
    with RedisServer(need(request.param)) as own:
        yield own


@pytest.fixture
def redis_client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A client of that server, as the product makes it."""
    with connect(redis_server.url) as client:
        yield client


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[LossyProxy]:
    """A way to that server on which replies can be lost."""
    with LossyProxy(redis_server.socket) as proxy:
        yield proxy


@pytest.fixture
def clock() -> HandClock:
    """The stores' clock, which moves by hand."""
    return HandClock()


@pytest.fixture
def kind_of_store(request: pytest.FixtureRequest) -> str:
    """A store's name: each in turn in `test_rules_*.py`; none elsewhere."""
    return str(getattr(request, "param", ""))


@pytest.fixture
def ledger(kind_of_store: str, request: pytest.FixtureRequest, clock: HandClock) -> Iterator[Ledger]:
    """An empty ledger on the clock that moves by hand: on each store in turn in `test_rules_*.py`, else in memory."""
    if kind_of_store:
        yield from opened(kind_of_store, request, clock, Sharding())
    else:
        yield EmbeddedLedger(clock)


@pytest.fixture
def sharded(kind_of_store: str, request: pytest.FixtureRequest, clock: HandClock) -> Iterator[Ledger]:
    """A ledger whose queue `default` has eight shards."""
    yield from opened(kind_of_store, request, clock, Sharding({"default": SHARDS}))


@pytest.fixture
def ledger_that_reports_deaths(
    kind_of_store: str, request: pytest.FixtureRequest, clock: HandClock
) -> Iterator[Ledger]:
    """A ledger that adds a task `task.dead` for each task that dies."""
    yield from opened(kind_of_store, request, clock, Sharding(), deaths=True)


@pytest.fixture
def ledger_of_two_queues(kind_of_store: str, request: pytest.FixtureRequest, clock: HandClock) -> Iterator[Ledger]:
    """A ledger in which a tenant may make two queues at most; the queue `wide` has eight shards."""
    yield from opened(kind_of_store, request, clock, Sharding({"wide": SHARDS}), max_queues=2)


@pytest.fixture
def whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each number that a script gives a command in memory is one whose text is the same on every server."""
    monkeypatch.setattr(embedded_server, "number", whole)


@pytest.fixture
def wire() -> Iterator[Wire]:
    """An App in place of the one before, as often as the test asks, until its end."""
    with ExitStack() as apps:
        yield lambda settings=None, **parts: apps.enter_context(wired_with(settings, **parts))


@pytest.fixture
def outbox() -> Outbox:
    """Where reminders go."""
    return Outbox()


@pytest.fixture
def web() -> Web:
    """Where webhooks go: it takes one."""
    return Web(answer(204))


@pytest.fixture
def app(ledger: EmbeddedLedger, outbox: Outbox, web: Web) -> Iterator[App]:
    """The functions' App, all of this process; every test of `test_http_*.py` has it."""
    with wired_with(ledger=ledger, senders=dict.fromkeys(("email", "phone"), outbox), http=web) as app:
        yield app


@pytest.fixture
def call_as(ledger: EmbeddedLedger) -> Iterator[CallAs]:
    """The HTTP function as deployed, called for a caller with a token whose tenant is the claim `org_id`."""

    def call(who: Caller, method: str, path: str, body: object = None, query: str = "", **headers: str) -> Answer:
        return ask(method, path, body, query=query, authorizer=token(who), **headers)

    settings = parse({"DUECOURSE_TENANT_FROM": "claim:org_id"})
    with wired_with(settings, ledger=ledger, senders=dict.fromkeys(("email", "phone"), Outbox()), http=Ok()) as app:
        assert app.access
        yield call


@pytest.fixture
def bells(server: RedisServer) -> Iterator[BellSetter]:
    """Bells in a server of the test's own."""
    with bell_setter(server) as man:
        yield man


@pytest.fixture
def recorder() -> Recorder:
    """What a bridge did, in order."""
    return Recorder()


@pytest.fixture
def replicas_do_not_come(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on nobody waits a second for replicas that are not there, or stand still."""
    return lambda: monkeypatch.setattr(script_calls, "WAIT_MS", 50)


@cache
def _loader(*_: object) -> object:
    from botocore.loaders import create_loader

    return create_loader()


@pytest.fixture
def aws_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and a region that lead to no account, whatever the environment of this run has."""
    import boto3
    import botocore.session

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    account = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "eu-central-1"}
    for name, value in account.items():
        monkeypatch.setenv(name, value)
    # boto3 keeps a session for the process, made with the first test's environment.
    # Of all that a new one makes, only the models of AWS's services take time to read, and those are the same for each.
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    monkeypatch.setattr(botocore.session, "create_loader", _loader)


@pytest.fixture(scope="module")
def stack(request: pytest.FixtureRequest) -> "Iterator[Stack]":
    """A local stack without schedules, with the variables in the module's `ENVIRONMENT`."""
    from duecourse_local.harness.options import Options
    from tests.support.emulator import local_stack

    with local_stack(Options(tick=0, environment=request.module.ENVIRONMENT)) as running:
        yield running


@pytest.fixture(scope="module")
def api(stack: "Stack") -> Iterator[Api]:
    """The HTTP API of that stack."""
    with urllib3.PoolManager(retries=False, timeout=30) as http:
        yield Api(http, stack.api)


@pytest.fixture
def http() -> Iterator[urllib3.PoolManager]:
    """What asks an HTTP API, several threads at a time."""
    with urllib3.PoolManager(retries=False, timeout=30, maxsize=10) as manager:
        yield manager
