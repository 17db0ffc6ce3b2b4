"""What a web page of another's, open in a developer's browser, gets of the harness: nothing of any server."""

import asyncio
import http.client
import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import urllib3

from local.aws.account import REGION
from local.process.runtime_api import RuntimeConnection
from local.stack.options import Options
from local.stack.stack import Stack

EVIL = "http://evil.example"
TASK = {"id": "planted", "kind": "webhook", "delay": 3600, "payload": {"url": "http://169.254.169.254/"}}
SIGNED = f"AWS4-HMAC-SHA256 Credential=local/20261122/{REGION}/dynamodb/aws4_request, SignedHeaders=host, Signature=0"
SCAN = {"X-Amz-Target": "DynamoDB_20120810.ListTables", "Content-Type": "application/x-amz-json-1.0"}
FOREIGN: dict[str, dict[str, str | None]] = {
    "a page of another origin": {"Origin": EVIL},
    "a page in a sandbox": {"Origin": "null"},
    "a page at another port": {"Origin": "http://127.0.0.1:1"},
    "an image of another site": {"Sec-Fetch-Site": "cross-site"},
    "a name that was made to lead here": {"Host": "evil.example"},
    "such a name with the port": {"Host": "evil.example:3000", "Origin": "http://evil.example:3000"},
    "such a name that ends as ours": {"Host": "notlocalhost"},
    "an address within a name": {"Host": "127.0.0.1.evil.example"},
    "a name with our own before an @": {"Host": "localhost@evil.example"},
    "another address of this machine": {"Host": "10.0.0.1"},
    "no name at all": {"Host": None},
}


class Call(NamedTuple):
    """A request that each server answers when nobody's page sends it."""

    method: str
    path: str
    body: bytes | None
    headers: dict[str, str]


CALLS = {
    "api": Call("POST", "/tasks", json.dumps(TASK).encode(), {"Content-Type": "application/json"}),
    "lambda_url": Call("POST", "/2015-03-31/functions/PollTickFunction/invocations", b"{}", {}),
    "aws": Call("POST", "/", b"{}", {"Authorization": SIGNED, **SCAN}),
}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with Stack(Options(store="memory://", tick=0, allow_hosts=("my-machine",))) as running:
        yield running


class Said(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes


def say(url: str, call: Call, headers: dict[str, str | None]) -> Said:
    """Send exactly these headers; `Host` is the address itself unless they say otherwise, None for none."""
    place = urlsplit(url).netloc
    connection = http.client.HTTPConnection(place, timeout=30)
    try:
        connection.putrequest(call.method, call.path, skip_host=True, skip_accept_encoding=True)
        given: dict[str, str | None] = {"Host": place, **call.headers, **headers}
        for name, value in given.items():
            if value is not None:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(call.body or b"")))
        connection.endheaders(call.body)
        answer = connection.getresponse()
        return Said(answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read())
    finally:
        connection.close()


@pytest.mark.parametrize("server", CALLS)
@pytest.mark.parametrize("stranger", FOREIGN)
def test_no_server_answers_a_web_page_of_anothers(stack: Stack, server: str, stranger: str) -> None:
    answer = say(getattr(stack, server), CALLS[server], FOREIGN[stranger])
    assert answer.status in {400, 403, 421}, answer
    assert not any(name.startswith("access-control-") for name in answer.headers)
    assert b"TableNames" not in answer.body
    assert say(stack.api, Call("GET", "/tasks/planted", None, {}), {}).status == 404


@pytest.mark.parametrize("server", CALLS)
@pytest.mark.parametrize(
    "name",
    [
        "localhost",
        "LOCALHOST:3000",
        "[::1]:3000",
        "127.0.0.1",
        "host.docker.internal:3000",
        "my-machine",
        "b.localhost",
    ],
)
def test_every_server_answers_to_the_names_of_this_machine(stack: Stack, server: str, name: str) -> None:
    call = CALLS[server]._replace(path="/nowhere") if server == "api" else CALLS[server]
    answer = say(
        getattr(stack, server), call, {"Host": name, "Origin": f"http://{name}", "Sec-Fetch-Site": "same-origin"}
    )
    assert answer.status == (404 if server == "api" else 200), answer


def test_the_emulator_lets_no_page_read_it(stack: Stack) -> None:
    """With CORS it would answer the question before the request: yes, any origin may."""
    asks = Call("OPTIONS", "/", None, {"Access-Control-Request-Method": "POST"})
    for headers in ({"Origin": EVIL}, {}):
        answer = say(stack.aws, asks, {**headers})
        assert not any(name.startswith("access-control-") for name in answer.headers), answer


@pytest.mark.parametrize("kind", ["text/plain;charset=UTF-8", "application/x-www-form-urlencoded", None])
def test_a_body_that_any_page_may_send_is_no_task(stack: Stack, kind: str | None) -> None:
    """fetch(url, {mode: "no-cors", body: new Blob([json])}) asks nobody first; a Blob has no type unless given one."""
    answer = say(stack.api, CALLS["api"], {"Content-Type": kind})
    assert (answer.status, json.loads(answer.body)["type"]) == (415, "urn:duecourse:problem:unsupported-body")


def test_the_page_of_the_documentation_works_in_a_browser(stack: Stack) -> None:
    page = say(stack.api, Call("GET", "/docs", None, {"Accept": "text/html"}), {"Sec-Fetch-Site": "none"})
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    own = {"Sec-Fetch-Site": "same-origin", "Referer": f"{stack.api}/docs"}
    assert say(stack.api, Call("GET", "/openapi.json", None, {}), {**own}).status == 200
    mine = json.dumps({**TASK, "id": "tried-out"}).encode()
    tried = say(stack.api, CALLS["api"]._replace(body=mine), {**own, "Origin": stack.api})
    assert tried.status == 201, tried


def test_the_sdk_and_a_plain_client_are_answered(stack: Stack) -> None:
    assert stack.session().client("dynamodb").list_tables()["TableNames"] is not None
    with urllib3.PoolManager(retries=False) as pool:
        assert pool.request("GET", stack.api + "/health").status == 200


class Silent:
    """A runtime that notes whether anybody reached it."""

    def __init__(self) -> None:
        self.reached: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.reached.append(name)


@pytest.mark.parametrize("stranger", FOREIGN)
def test_a_functions_own_api_answers_no_web_page(stranger: str) -> None:
    async def scene() -> tuple[bytes, list[str]]:
        runtime = Silent()
        server = await asyncio.get_running_loop().create_server(lambda: RuntimeConnection(runtime), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        headers = {"Host": f"{host}:{port}", "Content-Length": "2", **FOREIGN[stranger]}
        lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
        writer.write("\r\n".join(["POST /2018-06-01/runtime/init/error HTTP/1.1", *lines, "", "{}"]).encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        return answer, runtime.reached

    answer, reached = asyncio.run(scene())
    assert answer.split()[1] in {b"403", b"421"}
    assert reached == []
