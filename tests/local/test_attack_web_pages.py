"""What a web page of another's, open in a developer's browser, gets of the harness: nothing of any server."""

import asyncio
import http.client
import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import urllib3

from duecourse_local.demo.fake_services import FakeServices
from duecourse_local.harness.aws.account import REGION
from duecourse_local.harness.options import Options
from duecourse_local.harness.runtime_api import RuntimeConnection
from duecourse_local.harness.stack import Stack
from tests.support.commands import in_this_process

EVIL = "http://evil.example"
TASK = {"id": "planted", "kind": "webhook", "delay": 3600, "payload": {"url": "http://127.0.0.1:1/"}}
SIGNED = f"AWS4-HMAC-SHA256 Credential=local/20261122/{REGION}/dynamodb/aws4_request, SignedHeaders=host, Signature=0"
SCAN = {"X-Amz-Target": "DynamoDB_20120810.ListTables", "Content-Type": "application/x-amz-json-1.0"}
FOREIGN: dict[str, dict[str, str | None]] = {
    "a page of another origin": {"Origin": EVIL},
    "a page in a sandbox": {"Origin": "null"},
    "a page at another port": {"Origin": "http://127.0.0.1:1"},
    "an image of another site": {"Sec-Fetch-Site": "cross-site"},
    "an image of a page at another port": {"Sec-Fetch-Site": "same-site"},
    "a page at another port that has our name": {"Origin": "http://localhost:1", "Sec-Fetch-Site": "same-site"},
    "a name that was made to lead here": {"Host": "evil.example"},
    "such a name with the port": {"Host": "evil.example:3000", "Origin": "http://evil.example:3000"},
    "such a name that ends as ours": {"Host": "notlocalhost"},
    "a container's name for its host, unasked": {"Host": "host.docker.internal"},
    "an address within a name": {"Host": "127.0.0.1.evil.example"},
    "a name with our own before an @": {"Host": "localhost@evil.example"},
    "a list of names that ends as ours": {"Host": "evil.example,a.localhost"},
    "another address of this machine": {"Host": "10.0.0.1"},
    "no name at all": {"Host": None},
}


class Call(NamedTuple):
    """A request that each server answers when nobody's page sends it."""

    method: str
    path: str
    body: bytes | None
    headers: dict[str, str]


JSON = {"Content-Type": "application/json"}
CALLS = {
    "api": Call("POST", "/tasks", json.dumps(TASK).encode(), JSON),
    "lambda_url": Call("POST", "/2015-03-31/functions/PollTickFunction/invocations", b"{}", JSON),
    "aws": Call("POST", "/", b"{}", {"Authorization": SIGNED, **SCAN}),
}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with Stack(Options(store="memory://", tick=0, allow_hosts=("my-machine", "Host.containers.internal"))) as running:
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
        "host.containers.internal:3000",
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


@pytest.mark.parametrize("stranger", FOREIGN)
def test_no_page_of_anothers_scans_a_table(stack: Stack, stranger: str) -> None:
    dynamodb = stack.session().client("dynamodb")
    [table] = [name for name in dynamodb.list_tables()["TableNames"] if "Results" in name]
    [key] = [one["AttributeName"] for one in dynamodb.describe_table(TableName=table)["Table"]["KeySchema"]]
    dynamodb.put_item(TableName=table, Item={key: {"S": "a result of somebody's"}})
    headers = {**SCAN, "X-Amz-Target": "DynamoDB_20120810.Scan", "Authorization": SIGNED}
    scan = Call("POST", "/", json.dumps({"TableName": table}).encode(), headers)
    assert b"a result of somebody's" in say(stack.aws, scan, {}).body
    answer = say(stack.aws, scan, FOREIGN[stranger])
    assert (answer.status in {400, 403, 421}, b"somebody" in answer.body) == (True, False)


def test_the_emulator_lets_no_page_read_it(stack: Stack) -> None:
    """With CORS it would answer the question before the request: yes, any origin may."""
    asks = Call("OPTIONS", "/", None, {"Access-Control-Request-Method": "POST"})
    for headers in ({"Origin": EVIL}, {}):
        answer = say(stack.aws, asks, {**headers})
        assert not any(name.startswith("access-control-") for name in answer.headers), answer


OF_PAGES = ["text/plain;charset=UTF-8", "Application/X-www-form-urlencoded", "multipart/form-data; boundary=b", None]


@pytest.mark.parametrize("kind", OF_PAGES)
def test_a_body_that_any_page_may_send_is_no_task(stack: Stack, kind: str | None) -> None:
    """fetch(url, {mode: "no-cors", body: new Blob([json])}) asks nobody first; a Blob has no type unless given one."""
    answer = say(stack.api, CALLS["api"], {"Content-Type": kind})
    assert (answer.status, json.loads(answer.body)["type"]) == (415, "urn:duecourse:problem:unsupported-body")


@pytest.mark.parametrize("kind", OF_PAGES)
def test_a_body_that_any_page_may_send_invokes_no_function(stack: Stack, kind: str | None) -> None:
    """Lambda's own answer to a body that is not JSON."""
    answer = say(stack.lambda_url, CALLS["lambda_url"], {"Content-Type": kind})
    assert (answer.status, answer.headers["x-amzn-errortype"]) == (415, "UnsupportedMediaTypeException")
    assert b"Content-Type: application/json" in answer.body


@pytest.mark.parametrize("header", ["Authorization", "X-Amz-Invocation-Type", "amz-sdk-invocation-id"])
def test_an_sdk_that_gives_no_content_type_may_invoke(stack: Stack, header: str) -> None:
    """No browser sends such a header without asking first."""
    answer = say(stack.lambda_url, CALLS["lambda_url"], {"Content-Type": None, header: "RequestResponse"})
    assert answer.status == 200, answer


def test_a_bucket_with_rules_for_other_origins_lets_no_page_read_it(stack: Stack) -> None:
    s3 = stack.session().client("s3")
    s3.create_bucket(Bucket="open")
    rule = {"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}
    s3.put_bucket_cors(Bucket="open", CORSConfiguration={"CORSRules": [rule]})
    s3.put_object(Bucket="open", Key="one", Body=b"1", ACL="public-read")
    answer = say(stack.aws, Call("GET", "/open/one", None, {"Host": "localhost", "Origin": "http://localhost"}), {})
    assert (answer.status, answer.body) == (200, b"1")
    assert not any(name.startswith("access-control-") for name in answer.headers), answer


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


def test_a_wrong_name_is_rejected_with_what_to_do(stack: Stack) -> None:
    texts = {
        "Host": json.loads(say(stack.api, CALLS["api"], {"Host": "evil.example"}).body)["message"],
        "Origin": json.loads(say(stack.api, CALLS["api"], {"Origin": EVIL}).body)["message"],
        "Sec-Fetch-Site": json.loads(say(stack.api, CALLS["api"], {"Sec-Fetch-Site": "cross-site"}).body)["message"],
    }
    assert "--allow-host" in texts["Host"]
    assert EVIL in texts["Origin"]
    assert "A program may call it" in texts["Origin"]
    assert "Type an address" in texts["Sec-Fetch-Site"]


@pytest.mark.parametrize("name", ["my-machine:3000", "http://my-machine", "*", "a b", "", "-"])
def test_a_further_name_that_no_request_could_have_is_rejected(name: str) -> None:
    answer = in_this_process("up", "--allow-host", name)
    assert answer.exit_code == 2
    assert "--allow-host" in answer.output


@pytest.mark.parametrize("stranger", FOREIGN)
def test_the_demos_own_servers_answer_no_web_page(stranger: str) -> None:
    """A page that plants an answer would fail a story, or hear what the demo says."""
    with FakeServices() as services:
        for call in (Call("GET", "/exports/1", None, {}), Call("POST", "/hooks/orders", b"{}", {"webhook-id": "1"})):
            assert say(services.url, call, FOREIGN[stranger]).status in {403, 421}
        assert (services.polls, dict(services.deliveries)) == (0, {})
        assert say(services.url, Call("GET", "/exports/1", None, {}), {}).status == 200


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
