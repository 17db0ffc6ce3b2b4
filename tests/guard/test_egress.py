"""Where no call goes, however its address is written: not a byte, and no handshake either.

Every public and private network is listed here, so that what is rejected is what no setting allows.
"""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
from urllib3.util.connection import HAS_IPV6

from duecourse.app import ExternalParts
from duecourse.errors import CallFailed, EgressRejected, InvalidInput
from duecourse.guard.egress import OWN_USE, Egress
from duecourse.guard.http_client import Connection, GuardedHttpClient, HostConcurrencyLimit, SlowReadLock
from duecourse.guard.http_types import CredentialName, HttpRequest
from duecourse.guard.resolver import AddressGate, SystemResolver
from duecourse.settings import Settings
from tests.support.connections import dialled as connections
from tests.support.http_server import Reply, answering
from tests.support.names import Names

OWN = [
    "169.254.169.254",
    "169.254.170.2",
    "fe80::1",
    "fe80::1%lo",
    "febf::1",
    "fd00:ec2::254",
    "fd00:ec2::23",
    "::ffff:169.254.169.254",
    "::ffff:a9fe:aa02",
    "::ffff:0:169.254.169.254",
    "::169.254.169.254",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::169.254.169.254",
    "64:ff9b:1:a9fe:a9:fe00::",
    "64:ff9b:1:0:a9:fea9:fe00:0",
    "64:ff9b:1:a9:fe:a9fe::",
    "2002:a9fe:a9fe::1",
    "2001:0:a9fe:a9fe::1",
    "2001:0:1234::5601:5601",
]
"""Addresses of metadata, one for each form there is."""
OTHERS = ["127.0.0.1", "10.0.0.1", "192.0.2.1", "::1", "2001:db8::1", "fd00::1", "::ffff:10.0.0.1", "2002:a00:1::1"]
SPELLED = ["169.254.169.254", "0xa9fea9fe", "2852039166", "0251.0376.0251.0376", "169.254.43518", "[::ffff:a9fe:a9fe]"]
ALL = Egress.of("0.0.0.0/0, ::/0")
GATE = AddressGate(ALL, SystemResolver())


@pytest.fixture
def http() -> Iterator[GuardedHttpClient]:
    out = GuardedHttpClient(4, ALL)
    yield out
    out.close()


@pytest.fixture
def dialled() -> list[Any]:
    """Every address that this process connects to from now on."""
    return connections()


def request(url: str) -> HttpRequest:
    return HttpRequest("GET", url, {}, None, 2_000, 1_000)


def refusal(host: str) -> type[Exception]:
    """How an address is refused: on a machine without IPv6 one of its addresses is none at all."""
    return InvalidInput if HAS_IPV6 or not host.startswith("[") else CallFailed


@pytest.mark.parametrize("address", OWN)
def test_a_machines_metadata_is_known_in_every_form(address: str) -> None:
    with pytest.raises(EgressRejected, match=f"^egress: {OWN_USE}$"):
        GATE.check("any.example", address, 80)


@pytest.mark.parametrize("address", OTHERS)
def test_any_other_address_may_be_listed(address: str) -> None:
    GATE.check("any.example", address, 80)


def test_of_a_hosts_addresses_those_that_may_be_called_are() -> None:
    mixed = ["fe80::1%eth0", "192.0.2.1", "169.254.169.254"]
    names = Names({"mixed.example": [mixed], "own.example": [["169.254.169.254", "fe80::1"]]})
    gate = AddressGate(ALL, names.resolver)
    assert gate.addresses("mixed.example", 80, 5.0) == ["192.0.2.1"]
    with pytest.raises(EgressRejected):
        gate.addresses("own.example", 80, 5.0)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    "host", [*SPELLED, *(f"[{address}]" for address in OWN if ":" in address and "%" not in address)]
)
def test_nobody_is_dialled_where_no_call_may_go(
    http: GuardedHttpClient, dialled: list[Any], scheme: str, host: str
) -> None:
    del dialled[:]
    with pytest.raises(refusal(host)):
        http.call(request(f"{scheme}://{host}/latest/meta-data/"))
    assert dialled == []


RUNTIMES = ["127.0.0.1", "localhost", "0.0.0.0", "[::1]"]
HOSTS = [
    "127.0.0.1",
    "localhost",
    "LOCALHOST",
    "0.0.0.0",
    "127.1",
    "2130706433",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
]


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("host", HOSTS)
def test_the_functions_own_runtime_is_known_by_its_address(
    http: GuardedHttpClient, monkeypatch: pytest.MonkeyPatch, dialled: list[Any], runtime: str, host: str
) -> None:
    with answering(lambda _: Reply(body=b"another tenant's event")) as (url, asked):
        port = urlsplit(url).port
        monkeypatch.setenv("AWS_LAMBDA_RUNTIME_API", f"{runtime}:{port}")
        del dialled[:]
        with pytest.raises(refusal(host)):
            http.call(request(f"http://{host}:{port}/2018-06-01/runtime/invocation/next"))
        assert (asked, dialled) == ([], [])


@pytest.mark.parametrize("host", ["192.0.2.7", "::ffff:192.0.2.7", "::ffff:c000:207", "64:ff9b::c000:207"])
def test_a_runtime_that_is_not_on_loopback_is_known_in_every_form(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("AWS_LAMBDA_RUNTIME_API", "192.0.2.7:9001")
    with pytest.raises(EgressRejected):
        GATE.check("any.example", host, 9001)
    GATE.check("any.example", host, 9002)


def test_a_connection_that_leads_elsewhere_is_closed_before_anything_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
        monkeypatch.setenv("AWS_LAMBDA_RUNTIME_API", f"127.0.0.1:{place[1]}")
        with pytest.raises(InvalidInput):
            Connection("192.0.2.1", gate=GATE, slow_reads=SlowReadLock(), host_limit=HostConcurrencyLimit(1))._checked(
                socket.create_connection(place), "192.0.2.1"
            )
        assert _first_bytes(server) == b""


@pytest.mark.parametrize("runtime", ["127.0.0.1:1", "nobody.invalid:PORT", "192.0.2.1:PORT", "", "PORT"])
def test_what_is_not_the_runtime_is_called(
    http: GuardedHttpClient, monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    with answering(lambda _: Reply(body=b"mine")) as server:
        monkeypatch.setenv("AWS_LAMBDA_RUNTIME_API", runtime.replace("PORT", str(urlsplit(server.url).port)))
        assert http.call(request(server.url)).body == b"mine"
        http.close()


def test_no_tls_hello_is_said_to_the_runtime(http: GuardedHttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as aside:
        port = server.getsockname()[1]
        heard = aside.submit(_first_bytes, server)
        with pytest.raises(CallFailed):
            http.call(request(f"https://127.0.0.1:{port}/"))
        assert heard.result()[:1] == b"\x16", "any other server is said hello to"
        monkeypatch.setenv("AWS_LAMBDA_RUNTIME_API", f"localhost:{port}")
        with pytest.raises(InvalidInput):
            http.call(request(f"https://127.0.0.1:{port}/"))
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def _first_bytes(server: socket.socket) -> bytes:
    connection, _ = server.accept()
    with connection:
        return connection.recv(1_000)


def test_the_host_and_the_certificates_name_stay_the_ones_asked_for(http: GuardedHttpClient) -> None:
    with answering(lambda _: Reply()) as server:
        port = urlsplit(server.url).port
        http.call(request(f"http://localhost:{port}/"))
        http.close()
    assert server.asked[0].headers["host"] == f"localhost:{port}"


class Public:
    """A gate for which a server on this machine is a public one that is not listed."""

    def addresses(self, _host: str, _port: int, _within_s: float, *, in_clear: bool) -> list[str]:
        self.check("", "", 0, in_clear=in_clear)
        return ["127.0.0.1"]

    def check(self, _host: str, _address: str, _port: int, *, in_clear: bool) -> None:
        if in_clear:
            raise EgressRejected


def test_a_connection_that_is_kept_carries_no_credentials_in_clear_either() -> None:
    with answering(lambda _: Reply()) as server:
        connection: Any = Connection(
            "public.example",
            urlsplit(server.url).port,
            timeout=5.0,
            gate=Public(),
            slow_reads=SlowReadLock(),
            host_limit=HostConcurrencyLimit(1),
        )
        connection.request("GET", "/", headers={"accept": "a/b"})
        connection.getresponse().read()
        kept = connection.sock
        with pytest.raises(EgressRejected):
            connection.request("GET", "/", headers={"Authorization": "Bearer HIDDEN"})
        assert connection.sock is kept
        connection.close()
    assert len(server.asked) == 1


def test_a_call_with_a_credential_shares_no_connection_with_one_without(http: GuardedHttpClient) -> None:
    with answering(lambda _: Reply()) as server:
        for auth in (None, CredentialName("acme", "key"), None, CredentialName("acme", "key")):
            http.call(request(server.url)._replace(auth=auth))
        http.close()
    assert len({one.client for one in server.asked}) == 2


ENDPOINTS = [
    ("AWS_ENDPOINT_URL", "http://127.0.0.1:PORT"),
    ("AWS_ENDPOINT_URL", "http://localhost:PORT/path"),
    ("AWS_ENDPOINT_URL_LAMBDA", "http://127.0.0.1:PORT"),
    ("AWS_ENDPOINT_URL_SECRETS_MANAGER", "http://0.0.0.0:PORT"),
    ("AWS_ENDPOINT_URL_OF_A_SERVICE_TO_COME", "https://[::1]:PORT"),
]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize(("name", "url"), ENDPOINTS)
def test_a_service_of_aws_that_is_emulated_is_not_called(
    http: GuardedHttpClient, monkeypatch: pytest.MonkeyPatch, dialled: list[Any], name: str, url: str, host: str
) -> None:
    with answering(lambda _: Reply(body=b"another tenant's credential")) as server:
        port = str(urlsplit(server.url).port)
        monkeypatch.setenv(name, url.replace("PORT", port))
        del dialled[:]
        with pytest.raises(refusal(host)):
            http.call(request(f"http://{host}:{port}/2015-03-31/functions/EnqueueHttpFunction/invocations"))
        assert (server.asked, dialled) == ([], [])


@pytest.mark.parametrize(("scheme", "port"), [("http", 80), ("https", 443)])
def test_an_endpoint_without_a_port_has_its_schemes(monkeypatch: pytest.MonkeyPatch, scheme: str, port: int) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", f"{scheme}://192.0.2.7")
    with pytest.raises(EgressRejected):
        GATE.check("any.example", "192.0.2.7", port)
    GATE.check("any.example", "192.0.2.7", 8080)


SERVERS = [
    ({"store": "redis://:secret@192.0.2.7:7000/0"}, [("192.0.2.7", 7000)]),
    ({"store": "rediss://192.0.2.7"}, [("192.0.2.7", 6379)]),
    ({"store": "redis-cluster://192.0.2.7,192.0.2.8:7001"}, [("192.0.2.7", 6379), ("192.0.2.8", 7001)]),
    ({"store": "redis+sentinel://192.0.2.7,[2001:db8::7]:1/main"}, [("192.0.2.7", 26379), ("2001:db8::7", 1)]),
    ({"store": "redis://localhost:7000/0"}, [("127.0.0.1", 7000), ("::1", 7000), ("::ffff:127.0.0.1", 7000)]),
    ({"amqp": "amqp://user:secret@192.0.2.7"}, [("192.0.2.7", 5672)]),
    ({"amqp": "amqps://192.0.2.7"}, [("192.0.2.7", 5671)]),
]


@pytest.mark.parametrize(("given", "places"), SERVERS)
def test_no_call_goes_to_the_store_or_the_broker(given: dict[str, str], places: list[tuple[str, int]]) -> None:
    outside = ExternalParts(Settings(**given, egress_allow="0.0.0.0/0, ::/0"))
    gate = outside.http._gate  # type: ignore[attr-defined]
    for address, port in places:
        with pytest.raises(EgressRejected):
            gate.check("any.example", address, port)
        gate.check("any.example", address, 8080)


def test_a_store_without_a_server_forbids_nothing() -> None:
    for store in ("memory://", "leveldb:///tmp/6379", "unix:///run/redis.sock"):
        gate = ExternalParts(Settings(store=store, egress_allow="127.0.0.0/8")).http._gate  # type: ignore[attr-defined]
        gate.check("any.example", "127.0.0.1", 6379)
