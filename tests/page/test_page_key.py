"""The page that a command serves: a key in the address, exchanged for a cookie that goes nowhere else."""

import re
import socket
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from duecourse.page.key import COOKIE
from duecourse.page.server import Page
from duecourse_local.harness.addresses import listen
from duecourse_local.local_page import LocalPage, local_page
from tests.support.asgi import Answered, request
from tests.support.page import NotedApi

FOREIGN = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}


class Served(NamedTuple):
    """A page on a socket of this machine, and the parts of its address."""

    made: LocalPage
    api: NotedApi
    host: str
    base: str
    key: str

    def get(self, address: str, method: str = "GET", **headers: str) -> Answered:
        given = {"host": self.host, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return request(self.made.application, method, address, given)


def served(sock: socket.socket) -> Served:
    api = NotedApi()
    made = local_page(api, sock)
    parts = urlsplit(made.address)
    return Served(made, api, parts.netloc, parts.path.rstrip("/"), parts.query.removeprefix("key="))


@pytest.fixture
def page() -> Iterator[Served]:
    with listen(0, "--port") as sock:
        yield served(sock)


def cookie_of(answer: Answered) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


def opened(page: Served) -> str:
    """The cookie of a browser that opened the address."""
    return cookie_of(page.get(f"{page.base}/?key={page.key}"))


def test_the_address_is_of_this_machine_and_has_the_key(page: Served) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{8}/\?key=[\w-]{43}", page.made.address)


def test_the_key_is_exchanged_for_a_cookie_at_once_and_the_view_stays(page: Served) -> None:
    answer = page.get(f"{page.base}/tasks/a%2Fb?queue=mail&key={page.key}&x=%26")
    assert (answer.status, answer.headers["location"]) == (303, f"{page.base}/tasks/a%2Fb?queue=mail&x=%26")
    cookie, *rest = answer.headers["set-cookie"].split("; ")
    assert re.fullmatch(COOKIE + r"=[\w-]{43}", cookie)
    assert {one.lower() for one in rest} == {"httponly", "samesite=strict", f"path={page.base.lower()}"}
    assert page.key not in cookie
    assert answer.headers["cache-control"] == "no-store"


def test_the_cookie_opens_views_files_and_api(page: Served) -> None:
    cookie = opened(page)
    for address in ("/", "/tasks", "/static/page.css", "/api/queues", "/api/-/session"):
        assert page.get(page.base + address, cookie=cookie).status == 200
    assert page.get(f"{page.base}/tasks?key=stale", cookie=cookie).status == 200


def test_the_cookie_is_not_handed_to_the_api(page: Served) -> None:
    page.get(f"{page.base}/api/queues", cookie=f"other=1; {opened(page)}")
    [asked] = page.api.asked
    assert dict(asked.headers) == {}


@pytest.mark.parametrize("cookie", ["", f"{COOKIE}=", f"{COOKIE}=wrong", f"{COOKIE}=ü", "other=1"])
@pytest.mark.parametrize("key", [None, "", "wrong", "%C3%BC", "%ED%A0%80"])
def test_without_key_and_cookie_nothing_is_shown(page: Served, key: str | None, cookie: str) -> None:
    query = "" if key is None else f"?key={key}"
    for address in ("/", "/tasks", "/static/page.css", "/api/queues", "/api/-/session", "/nothing"):
        answer = page.get(page.base + address + query, cookie=cookie.encode().decode("latin-1"))
        assert answer.status == 401
        assert "Open the address that the command printed" in answer.text
        assert "set-cookie" not in answer.headers
    assert page.api.asked == []


def test_the_cookie_of_another_start_opens_nothing(page: Served) -> None:
    with listen(0, "--port") as sock:
        other = opened(served(sock))
    assert page.get(f"{page.base}/", cookie=other).status == 401


def test_a_key_opens_by_reading_alone(page: Served) -> None:
    answer = page.get(f"{page.base}/api/tasks?key={page.key}", method="POST")
    assert (answer.status, page.api.asked) == (401, [])


def test_the_address_for_a_browsers_command_line_opens_the_page_once(page: Served) -> None:
    once = urlsplit(page.made.address_once)
    answers = [page.get(f"{once.path}?{once.query}") for _ in range(3)]
    assert [one.status for one in answers] == [303, 401, 401]
    assert page.get(f"{page.base}/", cookie=cookie_of(answers[0])).status == 200
    assert [page.get(f"{page.base}/?key={page.key}").status for _ in range(2)] == [303, 303]


def test_a_link_from_another_site_opens_by_a_request_of_the_page_itself(page: Served) -> None:
    # SameSite=Strict: the browser keeps the cookie back, and sends it once the page asks by itself.
    answer = page.get(f"{page.base}/tasks", **FOREIGN)
    assert (answer.status, '<meta http-equiv="refresh" content="0">' in answer.text) == (200, True)
    assert page.get(f"{page.base}/tasks", sec_fetch_site="same-origin").status == 401
    assert page.get(f"{page.base}/api/queues", **FOREIGN).status == 401


def test_only_the_names_of_this_machine_with_the_port_are_answered(page: Served) -> None:
    port = page.host.partition(":")[2]
    cookie = opened(page)
    for host, status in {
        f"localhost:{port}": 200,
        f"[::1]:{port}": 200,
        "127.0.0.1": 421,
        "localhost:1": 421,
        f"evil.example:{port}": 421,
    }.items():
        answer = page._replace(host=host).get(f"{page.base}/api/queues", cookie=cookie)
        assert answer.status == status, host


def test_two_pages_at_once_keep_their_cookies_apart(page: Served) -> None:
    with listen(0, "--port") as sock:
        other = served(sock)
        assert other.base != page.base
        paths = [one.get(f"{one.base}/?key={one.key}").headers["set-cookie"] for one in (page, other)]
        assert all(f"Path={one.base};" in path for one, path in zip((page, other), paths, strict=True))
        both = f"{opened(page)}; {opened(other)}"
        assert other.get(f"{page.base}/", cookie=both).status != 200


def test_a_mounted_page_has_no_key_and_sets_no_cookie() -> None:
    answer = request(Page(NotedApi()), "GET", "/?key=x")
    assert (answer.status, "set-cookie" in answer.headers) == (200, False)
