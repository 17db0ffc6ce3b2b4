"""Logins that come from a secret, at real servers: a rotation while clients are at work is one reading and no error."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from urllib.parse import quote

import pytest
import redis

from duecourse.errors import DuecourseError, PublishRejected, StoreUnavailable
from duecourse.ledger.connect import Client, Login, connect
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.redis_bells import RedisBells
from duecourse.ledger.task import NewTask
from duecourse.running.task_event import BrokerMessage
from duecourse.services.rabbitmq import AmqpPublisher
from duecourse_local.harness.addresses import LOOPBACK, free_port
from duecourse_local.harness.rabbitmq_server import RabbitMq
from tests.support.matrix import MATRIX
from tests.support.redis_cluster import ClusterServers
from tests.support.redis_sentinel import SentinelServers
from tests.support.redis_server import REDIS, RedisServer, need
from tests.support.wait import until

pytestmark = pytest.mark.slow

FIRST, SECOND = "first word/1", "second word/2"


class ChangingSecret:
    """A Secret whose value a test sets; it counts how often it was read again."""

    def __init__(self, value: str) -> None:
        self.set = self._known = value
        self.renewals = 0
        self._lock = threading.Lock()

    def value(self) -> str:
        return self._known

    def renewed(self, refused: str) -> str | None:
        with self._lock:
            if self._known == refused:
                self.renewals += 1
                self._known = self.set
            return None if self._known == refused else self._known


class Site:
    """Servers whose user's password a test changes: `url` has a place for it, `nodes` connect as their operator."""

    def __init__(self, url: str, nodes: Callable[[], list[redis.Redis]]) -> None:
        self.url = url
        self._nodes = nodes
        self.rotate(FIRST)
        self.secret = ChangingSecret(self.at(FIRST))

    def at(self, password: str) -> str:
        return self.url.format(quote(password, safe=""))

    def rotate(self, password: str) -> None:
        """Only this password is right from now on, and whoever is connected is so no longer."""
        for node in self._nodes():
            with node:
                node.execute_command("ACL", "SETUSER", "app", "reset", "on", f">{password}", "~*", "&*", "+@all")
                for one in node.client_list():
                    if one["user"] == "app":
                        with suppress(redis.ResponseError):
                            node.client_kill_filter(_id=one["id"])

    def forget(self) -> None:
        for node in self._nodes():
            with node:
                node.execute_command("ACL", "DELUSER", "app")


@contextmanager
def of_one(version: str) -> Iterator[Site]:
    port = free_port(0, "")
    with RedisServer(need(version), "--bind", LOOPBACK, "--port", str(port)) as server:
        yield Site(f"redis://app:{{}}@{LOOPBACK}:{port}/3", lambda: [server.client()])


@contextmanager
def of_a_socket() -> Iterator[Site]:
    with RedisServer(need(REDIS[0])) as server:
        yield Site(f"unix://app:{{}}@{server.socket}", lambda: [server.client()])


@contextmanager
def of_a_cluster() -> Iterator[Site]:
    with ClusterServers() as servers:
        yield Site(
            servers.url.replace("://", "://app:{}@"), lambda: [servers.servers[port].client() for port in servers.ports]
        )


@contextmanager
def of_a_sentinel() -> Iterator[Site]:
    with SentinelServers() as servers:
        place = f"{LOOPBACK}:{servers.port}/main/0"
        yield Site(f"redis+sentinel://app:{{}}@{place}", lambda: [servers.client(servers.primary_port)])


SITES: dict[str, Callable[[], Any]] = {
    **{f"redis-{version}": lambda version=version: of_one(version) for version in REDIS},
    "socket": of_a_socket,
    "cluster": of_a_cluster,
    "sentinel": of_a_sentinel,
}
LATER = {f"redis-{version}" for version in REDIS[1:]} | {"socket"}


@pytest.fixture(scope="module", params=[pytest.param(s, marks=MATRIX) if s in LATER else s for s in SITES])
def servers(request: pytest.FixtureRequest) -> Iterator[Site]:
    with SITES[request.param]() as site:
        yield site
        site.forget()


@pytest.fixture
def site(servers: Site) -> Site:
    servers.rotate(FIRST)
    servers.secret = ChangingSecret(servers.at(FIRST))
    return servers


@contextmanager
def client_of(site: Site) -> Iterator[Client]:
    with connect(site.secret.value(), Login(site.secret)) as client:
        yield client


def test_a_rotation_while_a_store_is_at_work_is_one_reading_and_no_error(site: Site) -> None:
    with client_of(site) as client:
        ledger = Ledger(client)
        ledger.add([NewTask("before", "report")])
        site.rotate(SECOND)
        site.secret.set = site.at(SECOND)
        [claimed] = ledger.claim(ledger.shard_of("default", "before"), limit=1, lease_ms=60_000).tasks
        assert claimed.id == "before", "a claim is never sent twice: its login is, before it"
        ledger.add([NewTask("after", "report")])
        assert (ledger.get("default", "after") is not None, site.secret.renewals) == (True, 1)


def test_many_threads_at_a_rotation_read_the_secret_once(site: Site) -> None:
    with client_of(site) as client, ExitStack() as threads:
        ledger = Ledger(client)
        ledger.add([NewTask("one", "report")])
        site.rotate(SECOND)
        site.secret.set = site.at(SECOND)
        problems: list[DuecourseError] = []

        def look() -> None:
            try:
                ledger.get("default", "one")
            except DuecourseError as error:
                problems.append(error)

        running = [threading.Thread(target=look) for _ in range(8)]
        for thread in running:
            thread.start()
            threads.callback(thread.join)
    assert (problems, site.secret.renewals) == ([], 1)


def test_a_password_that_stays_wrong_is_an_outage_without_a_word_of_it(site: Site) -> None:
    with client_of(site) as client:
        ledger = Ledger(client)
        ledger.ping()
        site.rotate(SECOND)
        with pytest.raises(StoreUnavailable) as caught:
            ledger.get("default", "one")
        assert "first" not in str(caught.value)
        site.secret.set = site.at(SECOND)
        ledger.ping()


def test_a_login_that_comes_to_be_wanted_is_read(site: Site) -> None:
    """A Redis without a password gets one; its secret follows."""
    if "cluster" in site.url or "sentinel" in site.url:
        pytest.skip("the operator of these is the default user")
    plain = site.at("").replace("app:@", "")
    site.secret = ChangingSecret(plain)
    with client_of(site) as client, site._nodes()[0] as operator:
        Ledger(client).ping()
        try:
            operator.config_set("requirepass", SECOND)
            operator.client_kill_filter(_type="normal", skipme=True)
            site.secret.set = site.at(SECOND).replace("app:", ":")
            Ledger(client).ping()
            assert site.secret.renewals == 1
        finally:
            operator.config_set("requirepass", "")


def test_bells_are_heard_after_a_rotation(site: Site) -> None:
    bells = RedisBells(site.secret.value(), "ns", login=Login(site.secret))
    there = next(iter(bells.primaries().values()))

    def met() -> bool:
        """What was killed is an outage, and is met anew, as a bridge does."""
        try:
            bells.primaries()
            there.check_primary()
        except StoreUnavailable:
            return False
        return True

    try:
        assert met()
        there.subscribe().close()
        site.rotate(SECOND)
        site.secret.set = site.at(SECOND)
        until(met)
        subscription = there.subscribe()
        try:
            there.try_canary()
            assert subscription.hear(5.0) is not None
        finally:
            subscription.close()
        assert site.secret.renewals == 1
    finally:
        bells.close()


@MATRIX
def test_a_broker_takes_a_newer_login(rabbitmq: RabbitMq) -> None:
    secret = ChangingSecret(rabbitmq.url.replace("guest:guest", "guest:wrong"))
    publisher = AmqpPublisher("", secret=secret)
    try:
        with pytest.raises(PublishRejected):
            publisher.publish("logins", [BrokerMessage("1", "{}", "default")])
        secret.set, before = rabbitmq.url, secret.renewals
        publisher._refuse_until = 0.0
        assert publisher.publish("logins", [BrokerMessage("2", "{}", "default")]) == [""]
        assert (before, secret.renewals) == (1, 2)
    finally:
        publisher.close()
