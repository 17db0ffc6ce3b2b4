"""The way out to the web, against real servers of a few lines."""

import gzip
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from urllib3.exceptions import ConnectTimeoutError

from duecourse import __version__
from duecourse.errors import CallFailed, CallTimedOut, InvalidInput
from duecourse.guard import http_client
from duecourse.guard.http_client import GuardedHttpClient, connect_first
from duecourse.guard.http_types import HttpRequest
from tests.support.egress import HERE
from tests.support.http_server import ReceivedRequest, Reply, answering, misbehaving


@pytest.fixture
def http() -> Iterator[GuardedHttpClient]:
    out = GuardedHttpClient(4, HERE)
    yield out
    out.close()


def request(url: str, **changes: object) -> HttpRequest:
    return HttpRequest("GET", url, {}, None, 2_000, 1_000)._replace(**changes)


def certified(folder: Path) -> ssl.SSLContext:
    """A server's TLS context for 127.0.0.1; `certificate.pem` in the folder vouches for it."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "both.pem").write_bytes(secret + certificate.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "both.pem")
    return context


def dripping(start: bytes, drop: bytes, stop: threading.Event) -> Callable[[socket.socket], None]:
    """Sends `start`, then `drop` for five seconds, unless told to stop before."""

    def behave(connection: socket.socket) -> None:
        connection.sendall(start)
        for _ in range(250):
            if stop.wait(0.02):
                return
            connection.sendall(drop)

    return behave


def test_a_request_goes_out_as_asked_and_the_answer_comes_back(http: GuardedHttpClient) -> None:
    with answering(lambda asked: Reply(201, b"echo " + asked.body, {"X-Seen": "yes"})) as server:
        answer = http.call(request(f"{server.url}/a?b=c", method="PUT", headers={"x-one": "1"}, body=b"hello"))
        http.close()
    asked = server.asked[0]
    assert (asked.method, asked.path, asked.body, asked.headers["x-one"]) == ("PUT", "/a?b=c", b"hello", "1")
    assert (answer.status, answer.body, answer.whole, answer.headers["x-seen"]) == (201, b"echo hello", True, "yes")


def test_the_user_agent_names_the_product_unless_the_request_names_another(http: GuardedHttpClient) -> None:
    with answering(lambda _: Reply()) as server:
        http.call(request(server.url))
        http.call(request(server.url, headers={"user-agent": "mine"}))
        http.close()
    assert [asked.headers["user-agent"] for asked in server.asked] == [f"duecourse/{__version__}", "mine"]


def test_redirects_are_not_followed(http: GuardedHttpClient) -> None:
    with answering(lambda _: Reply(302, headers={"Location": "/elsewhere"})) as server:
        assert http.call(request(server.url)).status == 302
        http.close()
    assert len(server.asked) == 1


def test_an_error_status_is_an_answer_and_nothing_is_sent_twice(http: GuardedHttpClient) -> None:
    with answering(lambda _: Reply(503, headers={"Retry-After": "1"})) as server:
        assert http.call(request(server.url)).status == 503
        http.close()
    assert len(server.asked) == 1


def test_a_connection_serves_the_next_call_too(http: GuardedHttpClient) -> None:
    with answering(lambda _: Reply(body=b"{}")) as server:
        http.call(request(server.url))
        http.call(request(server.url))
        http.close()
    assert len({asked.client for asked in server.asked}) == 1


def test_a_connection_that_was_idle_for_long_is_not_used_again(
    http: GuardedHttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "MAX_IDLE_S", 0.0)
    with answering(lambda _: Reply(body=b"{}")) as server:
        http.call(request(server.url))
        http.call(request(server.url))
        http.close()
    assert len({asked.client for asked in server.asked}) == 2


def test_a_long_body_is_cut_and_said_to_be(http: GuardedHttpClient) -> None:
    with answering(lambda _: Reply(body=b"x" * 1_001)) as server:
        long = http.call(request(server.url))
        just = http.call(request(server.url, max_bytes=1_001))
        http.close()
    assert (long.body, long.whole) == (b"x" * 1_000, False)
    assert (len(just.body), just.whole) == (1_001, True)


def test_a_connection_with_the_rest_of_a_cut_body_is_not_used_again(http: GuardedHttpClient) -> None:
    heard_more: list[bytes] = []

    def hold_back_the_rest(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 1_001)
        heard_more.append(connection.recv(1))

    with misbehaving(hold_back_the_rest) as url:
        assert [http.call(request(url)).whole for _ in range(2)] == [False, False]
    assert heard_more == [b"", b""]


def test_a_compressed_body_is_bounded_as_it_unfolds(http: GuardedHttpClient) -> None:
    squeezed = gzip.compress(b"0" * 20_000_000)
    with answering(lambda _: Reply(body=squeezed, headers={"Content-Encoding": "gzip"})) as server:
        tracemalloc.start()
        answer = http.call(request(server.url))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        http.close()
    assert (answer.body, answer.whole) == (b"0" * 1_000, False)
    assert most < 5_000_000, "a thousand bytes unfold to a million, and no more are read"


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"x"),
    ],
    ids=["status line", "headers", "body", "chunks", "body without a length"],
)
def test_an_answer_that_drips_ends_at_the_timeout(http: GuardedHttpClient, start: bytes, drop: bytes) -> None:
    stop = threading.Event()
    with misbehaving(dripping(start, drop, stop)) as url:
        began = time.monotonic()
        with pytest.raises(CallTimedOut, match=r"no whole answer within 0\.3 s"):
            http.call(request(url, timeout_ms=300))
        took = time.monotonic() - began
        stop.set()
    assert 0.25 < took < 1.5


def test_an_https_answer_comes_back_and_one_that_drips_ends_at_the_timeout(
    http: GuardedHttpClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
    tls = certified(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    with misbehaving(lambda c: c.sendall(whole), tls) as url:
        assert http.call(request(url)).body == b"{}"
    with misbehaving(dripping(b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n", stop), tls) as url:
        with pytest.raises(CallTimedOut, match=r"no whole answer within 0\.3 s"):
            http.call(request(url, timeout_ms=300))
        stop.set()


def test_a_certificate_that_nobody_vouches_for_is_refused(http: GuardedHttpClient, tmp_path: Path) -> None:
    with misbehaving(lambda _: None, certified(tmp_path)) as url, pytest.raises(CallFailed, match="no secure"):
        http.call(request(url))


def test_a_connection_that_breaks_off_is_a_failed_call(http: GuardedHttpClient) -> None:
    def cut_short(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")

    for behave in (lambda _: None, cut_short):
        with misbehaving(behave) as url, pytest.raises(CallFailed, match="broke off"):
            http.call(request(url))


def test_a_chunk_of_negative_length_is_the_answers_fault_and_not_the_requests(http: GuardedHttpClient) -> None:
    said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n{}\r\n"
    with misbehaving(lambda c: c.sendall(said)) as url, pytest.raises(CallFailed, match="broke off"):
        http.call(request(url))


def test_an_answer_that_is_not_http_is_a_failed_call(http: GuardedHttpClient) -> None:
    with misbehaving(lambda c: c.sendall(b"SSH-2.0-OpenSSH_9\r\n")) as url, pytest.raises(CallFailed):
        http.call(request(url))


def test_nobody_there_is_a_failed_call_that_says_so(http: GuardedHttpClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(CallFailed, match=r"Connection refused") as failed:
        http.call(request(f"http://127.0.0.1:{port}"))
    assert not isinstance(failed.value, CallTimedOut)


def test_a_name_that_no_one_has_is_a_failed_call(http: GuardedHttpClient) -> None:
    with pytest.raises(CallFailed, match="host name is not known"):
        http.call(request("http://nobody.invalid/"))


def test_the_addresses_of_a_host_share_the_time_of_one_call() -> None:
    asked: list[tuple[str, float]] = []

    def nobody(address: str, within_s: float) -> socket.socket:
        asked.append((address, within_s))
        threading.Event().wait(within_s)
        raise ConnectTimeoutError

    with pytest.raises(ConnectTimeoutError):
        connect_first(nobody, ["192.0.2.1", "192.0.2.2", "192.0.2.3"], 0.3)
    assert [address for address, _ in asked] == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
    assert sum(within_s for _, within_s in asked) < 0.31
    assert max(within_s for _, within_s in asked) < 0.105, "none takes the parts of those behind it"


def test_an_address_that_refuses_leaves_its_time_to_the_next_and_to_the_answer() -> None:
    ours, theirs = socket.socketpair()

    def second(address: str, within_s: float) -> socket.socket:
        if address == "192.0.2.1":
            raise ConnectTimeoutError
        assert within_s > 1.0
        threading.Event().wait(0.05)
        return ours

    with ours, theirs:
        assert 1.0 < (connect_first(second, ["192.0.2.1", "192.0.2.2"], 2.0).gettimeout() or 0) < 1.96


def test_a_certificate_is_checked_for_the_name_that_was_asked_and_not_for_its_address(
    http: GuardedHttpClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = certified(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    with misbehaving(lambda _: None, tls) as url, pytest.raises(CallFailed, match=r"no secure.*localhost"):
        http.call(request(url.replace("127.0.0.1", "localhost")))


def test_an_https_address_that_speaks_plain_text_is_a_failed_call(http: GuardedHttpClient) -> None:
    with answering(lambda _: Reply()) as server, pytest.raises(CallFailed, match="no secure connection"):
        http.call(request(server.url.replace("http:", "https:")))


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "ftp://127.0.0.1/x"},
        {"url": "http://"},
        {"url": "http://[::1"},
        {"url": "http://127.0.0.1:99999/"},
        {"headers": {"x": "a\r\nb: c"}},
        {"headers": {"x\r\ny": "1"}},
        {"headers": {"x": "\u20ac"}},
        {"method": "GET /\r\n"},
    ],
)
def test_a_request_that_can_never_be_sent_is_invalid_input(http: GuardedHttpClient, changes: dict[str, object]) -> None:
    with answering(lambda _: Reply()) as server:
        with pytest.raises(InvalidInput):
            http.call(request(server.url)._replace(**changes))
        http.close()


def test_no_secret_of_the_address_is_in_an_error(http: GuardedHttpClient) -> None:
    with pytest.raises(CallFailed) as failed:
        http.call(request("http://user:hidden@nobody.invalid/path?token=hidden#hidden"))
    assert str(failed.value).startswith("GET http://nobody.invalid/path failed")


@pytest.mark.parametrize("changes", [{"url": "http://127.0.0.1:1/a b?key=hidden"}, {"headers": {"x": "hidden\r\n"}}])
def test_no_secret_of_a_request_that_cannot_be_sent_is_in_the_error(
    http: GuardedHttpClient, changes: dict[str, object]
) -> None:
    with answering(lambda _: Reply()) as server:
        with pytest.raises((InvalidInput, CallFailed)) as failed:
            http.call(request(server.url)._replace(**changes))
        http.close()
    assert "hidden" not in str(failed.value)


def test_calls_in_parallel_do_not_wait_for_each_other(http: GuardedHttpClient) -> None:
    together = threading.Barrier(4, timeout=30)

    def meet(_: ReceivedRequest) -> Reply:
        together.wait()
        return Reply()

    with answering(meet) as server:
        threads = [threading.Thread(target=http.call, args=(request(server.url, timeout_ms=6_000),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        http.close()
    assert not together.broken
