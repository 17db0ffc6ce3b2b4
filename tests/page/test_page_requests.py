"""The page as an application: files, views and the API beside them, below any path, for requests of its own."""

import asyncio
import json
import threading
from pathlib import Path

import pytest

from duecourse import __version__
from duecourse.api.router import DOCUMENT
from duecourse.in_place import ApiAnswer, ApiRequest, ApiUnavailable
from duecourse.page.files import STATIC, TYPES
from duecourse.page.requests import DRY_RUNS, PREVIEWS
from duecourse.page.server import AT_A_TIME, POLICY, VIEWS, Page
from tests.support.asgi import Answered, answer_of, request
from tests.support.page import FRONT_END, ORIGIN, NotedApi, answered

PROBLEM = {"type": "urn:duecourse:problem:task-not-found", "title": "No such task.", "status": 404, "detail": "none"}
ADDRESSES = [
    "/",
    "/queues/a%2Fb",
    "/tasks",
    "/tasks/order-7?queue=mail",
    "/dead",
    "/dead/mail",
    "/schedules",
    "/schedules/daily",
    "/reminders",
    "/reminders/standup",
    "/queries/q1",
    "/watched",
    "/limits",
    "/search?q=x",
]


def base_of(answer: Answered) -> str:
    return answer.text.partition('<base href="')[2].partition('"')[0]


def code_of(answer: Answered) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.document["status"] == answer.status
    assert {"title", "detail"} <= answer.document.keys()
    return answer.status, answer.document["type"].removeprefix("urn:duecourse:problem:")


@pytest.mark.parametrize("address", ADDRESSES)
def test_each_view_has_an_address(address: str) -> None:
    answer = request(Page(NotedApi()), "GET", address)
    assert (answer.status, base_of(answer)) == (200, "/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("address", ["/nothing", "/static/nothing.mjs", "/static/", "/favicon.ico", "/apis/x"])
def test_what_is_no_view_and_no_file_is_404_in_plain_words(address: str) -> None:
    answer = request(Page(NotedApi()), "GET", address)
    assert (answer.status, "There is no such view." in answer.text) == (404, True)


def test_the_front_end_has_no_view_that_the_server_does_not_know() -> None:
    cases = {line.partition('"')[2].partition('"')[0] for line in app_lines() if line.strip().startswith('case "')}
    assert cases <= VIEWS
    assert len(cases) > 5


def app_lines() -> list[str]:
    return (STATIC / "app.mjs").read_text().splitlines()


@pytest.mark.parametrize("address", ["/", "/tasks", "/static/page.css", "/api/tasks", "/api/-/session", "/nothing"])
def test_every_answer_has_the_headers_that_bind_a_browser(address: str) -> None:
    headers = request(Page(NotedApi()), "GET", address).headers
    assert headers["content-security-policy"] == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "set-cookie" not in headers
    assert not [name for name in headers if name.startswith("access-control-")]


def test_the_policy_lets_in_no_host_and_no_inline_script_or_style() -> None:
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";"))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in POLICY
    assert {word for rule in rules.values() for word in rule.split()} == {"'none'", "'self'", "data:"}


def files() -> list[Path]:
    return sorted(path for path in STATIC.rglob("*") if path.suffix in TYPES)


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_a_file_comes_as_it_lies_there_and_once_while_it_is_the_same(path: Path) -> None:
    page, address = Page(NotedApi()), f"/static/{path.relative_to(STATIC).as_posix()}"
    answer = request(page, "GET", address)
    assert (answer.status, answer.body) == (200, path.read_bytes())
    assert answer.headers["content-type"].partition(";")[0] == TYPES[path.suffix]
    assert answer.headers["cache-control"] == "no-cache"
    again = request(page, "GET", address, {"if-none-match": f'"other", W/{answer.headers["etag"]}'})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    "name",
    ["../server.py", "%2e%2e/server.py", "..%2fserver.py", "/etc/passwd", "vendor", "vendor/../../key.py"],
)
def test_no_file_outside_the_front_end_comes(name: str) -> None:
    assert request(Page(NotedApi()), "GET", f"/static/{name}").status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("address", ["/", "/static/page.css"])
def test_views_and_files_can_only_be_read(method: str, address: str) -> None:
    answer = request(Page(NotedApi()), method, address, FRONT_END)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


# The API beside the files.


def test_a_request_reaches_the_api_as_it_was_sent() -> None:
    api = NotedApi(lambda _: answered(201, {"b": 1, "a": [1.50]}))
    headers = {**FRONT_END, "idempotency-key": '"k1"', "cookie": "session=team", "authorization": "Bearer team"}
    answer = request(Page(api), "POST", "/api/tasks/a%2Fb%20c/cancel?queue=a%26b&force", headers, b'{"x": 1e2}')
    assert (answer.status, answer.body) == (201, b'{"b": 1, "a": [1.5]}')
    [asked] = api.asked
    assert asked == ApiRequest(
        "POST",
        "/tasks/a%2Fb%20c/cancel",
        {"queue": "a&b", "force": ""},
        b'{"x": 1e2}',
        {"content-type": "application/json", "idempotency-key": '"k1"'},
    )


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 429, 500, 503])
def test_a_problem_comes_back_unchanged(status: int) -> None:
    problem = {**PROBLEM, "status": status, "near": "order-8"}
    given = answered(status, problem) if status < 500 else ApiAnswer(status, json.dumps(problem).encode())
    headers = {"content-type": "application/problem+json", "retry-after": "7", "allow": "GET", "set-cookie": "a=b"}
    answer = request(Page(NotedApi(lambda _: given._replace(headers=headers))), "GET", "/api/tasks/order-7")
    assert (answer.status, answer.document) == (status, problem)
    kept = {name: answer.headers.get(name) for name in headers}
    assert kept == {**headers, "set-cookie": None}
    assert answer.headers["cache-control"] == "no-store"


def test_an_empty_answer_stays_empty() -> None:
    answer = request(Page(NotedApi(lambda _: ApiAnswer(204, b""))), "DELETE", "/api/tasks/a", FRONT_END)
    assert (answer.status, answer.body) == (204, b"")


def test_an_api_that_is_away_is_503_with_the_reason() -> None:
    def away(_asked: ApiRequest) -> ApiAnswer:
        raise ApiUnavailable("API http://ops does not answer: refused")

    answer = request(Page(NotedApi(away)), "GET", "/api/queues")
    assert code_of(answer) == (503, "page-unavailable")
    assert answer.document["detail"] == "API http://ops does not answer: refused"
    assert answer.headers["retry-after"] == "1"


def test_an_error_of_the_api_is_the_servers_to_report() -> None:
    def broken(_asked: ApiRequest) -> ApiAnswer:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        request(Page(NotedApi(broken)), "GET", "/api/queues")


def test_head_is_answered_as_get_without_the_body() -> None:
    api = NotedApi()
    for address in ("/api/queues", "/tasks", "/static/page.css", "/api/-/session"):
        got, head = (request(Page(api), method, address) for method in ("GET", "HEAD"))
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == str(len(got.body))
    assert {asked.method for asked in api.asked} == {"GET"}


def test_a_large_answer_and_a_large_body_pass_whole() -> None:
    large = json.dumps({"payload": "x" * 5_000_000}).encode()
    api = NotedApi(lambda asked: ApiAnswer(200, asked.body or large))
    assert request(Page(api), "GET", "/api/tasks").body == large
    assert request(Page(api), "POST", "/api/tasks/batch", FRONT_END, large).body == large


def test_a_body_over_the_apis_own_limit_is_413() -> None:
    api = NotedApi()
    answer = request(Page(api), "POST", "/api/tasks/batch", FRONT_END, b" " * (6 * 1024 * 1024 + 1))
    assert code_of(answer) == (413, "body-too-large")
    assert api.asked == []


def test_the_body_of_a_get_is_not_passed_on() -> None:
    api = NotedApi()
    request(Page(api), "GET", "/api/tasks", body=b'{"x": 1}')
    assert api.asked == [ApiRequest("GET", "/tasks")]


def test_the_session_says_where_the_page_is_and_what_it_may() -> None:
    api = NotedApi()
    api.tenant = "acme"
    found = request(Page(api, read_only=True), "GET", "/api/-/session").document
    now = found.pop("now")
    assert found == {"read_only": True, "version": __version__, "place": NotedApi.name, "tenant": "acme"}
    assert now.endswith("Z")
    assert code_of(request(Page(api), "POST", "/api/-/session", FRONT_END)) == (405, "page-method")


def test_few_requests_are_with_the_api_at_a_time_and_others_wait() -> None:
    entered, released, inside, most = threading.Semaphore(0), threading.Event(), [0], [0]
    counting = threading.Lock()

    def slow(_asked: ApiRequest) -> ApiAnswer:
        with counting:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        entered.release()
        assert released.wait(30)
        with counting:
            inside[0] -= 1
        return answered(200, {})

    async def ask_many() -> list[Answered]:
        page = Page(NotedApi(slow))
        asking = [asyncio.create_task(answer_of(page, "GET", "/api/queues")) for _ in range(AT_A_TIME + 3)]
        for _ in range(AT_A_TIME):
            await asyncio.to_thread(entered.acquire, timeout=30)
        session = await answer_of(page, "GET", "/api/-/session")  # needs no API
        assert session.status == 200
        released.set()
        return await asyncio.gather(*asking)

    assert {one.status for one in asyncio.run(ask_many())} == {200}
    assert most == [AT_A_TIME]


# Requests of others than the page.


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://ops.example:8000"},
        {"origin": "http://ops.example.evil.example"},
        {"origin": [ORIGIN, "https://evil.example"]},
        {"origin": [ORIGIN, ORIGIN]},
        {"origin": []},
        {"x-duecourse-page": []},
        {"x-duecourse-page": "0"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE", "PUT", "OPTIONS"])
def test_a_change_that_another_page_may_have_sent_is_403(method: str, headers: dict[str, str]) -> None:
    api = NotedApi()
    answer = request(Page(api), method, "/api/tasks/order-7", {**FRONT_END, **headers})
    assert code_of(answer) == (403, "page-origin")
    assert api.asked == []


@pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}], ids=str)
def test_another_page_reads_nothing_either(headers: dict[str, str]) -> None:
    api = NotedApi()
    assert code_of(request(Page(api), "GET", "/api/queues", headers)) == (403, "page-origin")
    assert api.asked == []


@pytest.mark.parametrize("origin", ["http://ops.example", "https://ops.example", "HTTPS://OPS.example"])
def test_the_origin_is_the_pages_own_before_and_behind_a_proxy_with_tls(origin: str) -> None:
    headers = {**FRONT_END, "origin": origin, "sec-fetch-site": "same-origin"}
    assert request(Page(NotedApi()), "POST", "/api/tasks", headers, b"{}").status == 200


@pytest.mark.parametrize("hosts", [[], ["ops.example", "evil.example"], ["ops.example", "ops.example"]], ids=str)
def test_a_request_without_one_host_is_421(hosts: list[str]) -> None:
    for address in ("/", "/api/queues"):
        assert code_of(request(Page(NotedApi()), "GET", address, {"host": hosts})) == (421, "page-host")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:3002", 200),
        ("localhost:3002", 200),
        ("LOCALHOST:3002", 200),
        ("localhost", 421),
        ("localhost:3003", 421),
        ("evil.example:3002", 421),
        ("localhost:3002.evil.example", 421),
    ],
)
def test_a_page_that_knows_its_names_answers_to_no_other(host: str, status: int) -> None:
    page = Page(NotedApi(), hosts=frozenset({"127.0.0.1:3002", "localhost:3002"}))
    for address in ("/", "/api/queues", "/static/page.css"):
        assert request(page, "GET", address, {"host": host}).status == status


# Read-only.


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/tasks", b""),
        ("HEAD", "/tasks", b""),
        ("POST", "/schedules/preview", b"{}"),
        ("POST", "/reminders/preview", b"{}"),
        ("POST", "/queues/a%2Fb/purge", b'{"state": "dead", "dry_run": true}'),
        ("POST", "/queues/default/dead/replay", b'{"dry_run": true}'),
        ("POST", "/queues/default/cancel", b'{"dry_run": true}'),
        ("POST", "/schedules/purge", b'{"dry_run": true}'),
    ],
)
def test_a_read_only_page_shows_and_counts(method: str, path: str, body: bytes) -> None:
    api = NotedApi()
    assert request(Page(api, read_only=True), method, f"/api{path}", FRONT_END, body).status == 200
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/tasks", b'{"dry_run": true}'),
        ("POST", "/tasks/preview", b"{}"),
        ("POST", "/tasks/order-7/replay", b'{"dry_run": true}'),
        ("POST", "/queues/default/purge", b"{}"),
        ("POST", "/queues/default/purge", b'{"dry_run": false}'),
        ("POST", "/queues/default/purge", b'{"dry_run": 1}'),
        ("POST", "/queues/default/purge", b'[{"dry_run": true}]'),
        ("POST", "/queues/default/purge", b"\xff"),
        ("POST", "/queues/default/purge", b"[" * 100_000),
        ("POST", "/queues/default/purge", b""),
        ("POST", "/queues/default/purge/x", b'{"dry_run": true}'),
        ("DELETE", "/schedules/preview", b""),
        ("PATCH", "/queues/default", b'{"dry_run": true}'),
        ("PUT", "/tasks/a", b""),
        ("OPTIONS", "/tasks", b""),
    ],
)
def test_a_read_only_page_changes_nothing(method: str, path: str, body: bytes) -> None:
    api = NotedApi()
    answer = request(Page(api, read_only=True), method, f"/api{path}", FRONT_END, body)
    assert code_of(answer) == (403, "page-read-only")
    assert api.asked == []


def test_the_routes_that_a_read_only_page_has_are_those_of_the_api() -> None:
    document = json.loads(DOCUMENT.read_bytes())
    posts = {path: one["post"] for path, one in document["paths"].items() if "post" in one}
    bodies = {path: json.dumps(post.get("requestBody", {})) for path, post in posts.items()}
    dry = {path for path in posts if any(has_dry_run(name) for name in names_in(bodies[path]))}
    assert dry == {path for path in posts if DRY_RUNS.fullmatch(path)}
    assert {path for path in posts if path.endswith("/preview")} == set(PREVIEWS)


def names_in(text: str) -> set[str]:
    return {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}


def has_dry_run(name: str) -> bool:
    found = json.loads(DOCUMENT.read_bytes())["components"]["schemas"][name]
    return "dry_run" in found.get("properties", {})


# Below any path.


@pytest.mark.parametrize(
    ("base", "root", "path", "public"),
    [
        ("", "", "/tasks/a%2Fb", "/"),
        ("", "/ops", "/ops/tasks/a%2Fb", "/ops/"),
        ("", "/team/ops", "/team/ops/tasks/a%2Fb", "/team/ops/"),
        ("", "/team/ops", "/ops/tasks/a%2Fb", "/team/ops/"),  # a proxy took /team off, and told the server
        ("", "/team", "/tasks/a%2Fb", "/team/"),
        ("/ops", "", "/ops/tasks/a%2Fb", "/ops/"),
        ("/ops", "", "/tasks/a%2Fb", "/ops/"),  # a proxy took it off, and told nobody
        ("ops/", "/ops", "/ops/tasks/a%2Fb", "/ops/"),
        ("/team/ops", "/ops", "/ops/tasks/a%2Fb", "/team/ops/"),
        ("/tasks", "/tasks", "/tasks/tasks/a%2Fb", "/tasks/"),
        ("/", "", "/tasks/a%2Fb", "/"),
    ],
)
def test_views_files_and_api_lie_below_the_base(base: str, root: str, path: str, public: str) -> None:
    api = NotedApi()
    page = Page(api, base=base)
    assert base_of(request(page, "GET", path, root_path=root)) == public
    request(page, "GET", path.replace("/tasks/a", "/api/tasks/a"), root_path=root)
    assert api.asked == [ApiRequest("GET", "/tasks/a%2Fb")]
    assert request(page, "GET", path.replace("/tasks/a%2Fb", "/static/page.css"), root_path=root).status == 200


def test_the_bare_base_is_the_first_view() -> None:
    page = Page(NotedApi(), base="/ops")
    for path in ("/ops", "/ops/"):
        assert base_of(request(page, "GET", path)) == "/ops/"


def test_a_path_that_only_begins_like_the_base_is_not_below_it() -> None:
    assert request(Page(NotedApi(), base="/ops"), "GET", "/opsx/tasks").status == 404


def test_a_base_is_text_in_the_document() -> None:
    answer = request(Page(NotedApi()), "GET", '/"><script>/tasks', root_path='/"><script>')
    assert base_of(answer) == "/%22%3E%3Cscript%3E/"
    assert "<script>/" not in answer.text


def test_a_server_without_raw_paths_is_served_too() -> None:
    api = NotedApi()
    request(Page(api), "GET", "/ops/api/tasks/a%20b", root_path="/ops", raw_path=None)
    assert api.asked == [ApiRequest("GET", "/tasks/a%20b")]


def test_a_server_that_starts_and_ends_or_opens_a_socket_gets_no_answer() -> None:
    async def never(*_: object) -> None:
        pytest.fail("nothing is to be said")

    for kind in ("lifespan", "websocket"):
        asyncio.run(Page(NotedApi())({"type": kind}, never, never))
