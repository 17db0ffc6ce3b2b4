"""The key and the cookie of `duecourse page` in a real browser: who gets them, and which links open the page."""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.support.browser import needs_browser, opened
from tests.support.http_server import ReceivedRequest, Reply, answering
from tests.support.page import ledger_options, page_command

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytest.importorskip("playwright")
from playwright.sync_api import expect

pytestmark = [pytest.mark.slow, needs_browser]

OTHER_PAGE = """<!doctype html><title>waits</title><a href="{page}/limits">a link in a chat</a>
<script>
const asked = [
  fetch("{page}/api/queues", {{credentials: "include"}}),
  fetch("{page}/api/tasks", {{method: "POST", mode: "no-cors", credentials: "include", body: "{{}}"}}),
];
Promise.allSettled(asked).then(([read]) => {{ document.title = read.status; }});
</script>"""


def test_the_key_leaves_the_address_and_the_cookie_opens_the_page_alone(browser: "Browser", tmp_path: Path) -> None:
    with page_command(*ledger_options(tmp_path), "--port", "0") as (address, _):
        base = address.partition("?")[0].rstrip("/")
        with answering(lambda _: Reply(200, b"{}", {"content-type": "text/html"})) as other:
            with opened(browser, base) as page:
                page.goto(address)
                expect(page.get_by_role("heading", level=1)).to_be_visible()
                assert page.url == f"{base}/"
                [cookie] = page.context.cookies()
                assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
                assert cookie["path"] == urlsplit(base).path
                page.context.new_page().goto(other.url)  # another server of this machine, of another user
            assert [asked.headers.get("cookie") for asked in other.asked if asked.path == "/"] == [None]


def test_a_page_of_another_site_reads_and_changes_nothing_and_its_links_open(
    browser: "Browser", tmp_path: Path
) -> None:
    with page_command(*ledger_options(tmp_path), "--port", "0") as (address, _):
        base = address.partition("?")[0].rstrip("/")

        def other_page(_asked: ReceivedRequest) -> Reply:
            return Reply(200, OTHER_PAGE.format(page=base).encode(), {"content-type": "text/html"})

        with answering(other_page) as other:
            context = browser.new_context()
            page = context.new_page()
            page.goto(address)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            for site in (other.url, other.url.replace("127.0.0.1", "localhost")):
                page.goto(site)
                expect(page).to_have_title("rejected")
                page.get_by_role("link").click()
                expect(page).to_have_url(f"{base}/limits")
                expect(page.get_by_role("heading", level=1)).to_have_text("Limits")
            context.close()


def test_without_its_key_the_page_says_where_the_key_is(browser: "Browser", tmp_path: Path) -> None:
    with page_command(*ledger_options(tmp_path), "--port", "0") as (address, _):
        base = address.partition("?")[0]
        context = browser.new_context()
        page = context.new_page()
        for given in (base, f"{base}?key=stale", f"{base}tasks"):
            page.goto(given)
            expect(page.get_by_role("heading", level=1)).to_have_text("This page needs its key.")
        context.close()
