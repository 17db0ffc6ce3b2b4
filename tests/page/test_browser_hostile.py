"""The operators' page with names, texts and neighbours that mean it no good."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NoReturn

import pytest
from playwright.sync_api import expect

from duecourse import Done, Task
from duecourse.testing import Duecourse
from tests.support.browser import Traffic, needs_browser, opened, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.slow, needs_browser]

MARKUP = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
TEXT = f'{MARKUP}\u202eright to left\u202c مرحبا 🎉👩‍👩‍👧‍👦 & "quotes" ${{1}}'
LONG = "x" * 10_000
NAMES = ("..", ".", "constructor", "toString", "__proto__", "-", "a" * 64)
VIEWS = (
    "",
    "dead",
    "dead/constructor",
    "limits",
    "schedules",
    "schedules?span=constructor&show=toString",
    "schedules?show=calendar",
    "tasks?queue=default",
    "tasks?queue=constructor&state=dead",
    "tasks/constructor?queue=default",
    "tasks/__proto__?queue=constructor",
    f"tasks/{'a' * 128}?queue=constructor",
    "queues/__proto__",
    "tasks/a%2Fb%3F%23%25",
    "tasks/%E0%A4%A",
    "queues/%3Cimg%20src=x%20onerror=window.hacked=1%3E",
)


def explain(task: Task) -> Done:
    return Done({TEXT: [TEXT, LONG[:2_000]], "__proto__": {"x": 1}, "constructor": None, "": task.payload})


def fail(_: Task) -> NoReturn:
    raise ValueError(TEXT + LONG)


@pytest.fixture(scope="module")
def day() -> Iterator[Duecourse]:
    now = datetime.now(UTC)
    with Duecourse(start=now - timedelta(hours=1)) as made:
        made.handle("explain", explain)
        made.handle("fail", fail)
        for name in (*NAMES, "a" * 128):
            made.add("explain", {"html": TEXT}, id=name)
            made.add("fail", {}, id=name, queue="constructor", retry={"max_attempts": 1})
        for name in NAMES:
            made.add("fail", {}, id="dead", queue=name, retry={"max_attempts": 1})
            made.client.set_queue(name, max_running=1)
            made.client.schedules.add(id=name, kind="explain", payload={"html": TEXT}, repeat={"every": "PT7M"})
        made.advance(now - timedelta(minutes=10))
        for name in NAMES:
            made.client.set_queue(name, paused=True)
            made.add("explain", {}, id="late", queue=name)
        made.advance(now)
        yield made


@pytest.fixture(scope="module")
def address(day: Duecourse) -> Iterator[str]:
    with served(day, mount="/my ops") as made:
        yield made.replace(" ", "%20")


@pytest.fixture
def page(browser: "Browser", address: str) -> "Iterator[Page]":
    with opened(browser, address) as made:
        yield made


@pytest.mark.parametrize("view", VIEWS)
def test_no_name_and_no_text_breaks_a_view(page: "Page", view: str) -> None:
    traffic = Traffic(page)
    page.goto(view)
    expect(page.locator("main")).to_contain_text(re.compile(".{5}"))
    traffic.settle()
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_queue_that_cannot_be_asked_for_hides_none_of_the_others(page: "Page") -> None:
    for view in ("", "dead"):
        page.goto(view)
        expect(page.locator(".finding", has_text="dead in constructor").first).to_be_visible()
        unread = page.locator(".finding", has_text="cannot be read")
        expect(unread.first).to_contain_text("A browser cannot ask for the name")
    page.goto("")
    expect(page.get_by_role("heading", name="Over time")).to_be_visible()
    page.goto("limits")
    row = page.get_by_role("row", name=re.compile("^constructor"))
    expect(row).to_contain_text("its queue is paused")


def test_a_name_of_dots_leads_to_a_word_on_it_and_not_to_another_view(page: "Page") -> None:
    page.goto("tasks?queue=default")
    page.get_by_role("link", name="..", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Search for ..")
    expect(page.get_by_role("alert")).to_contain_text("A browser cannot ask for the name")


def test_a_sentence_that_is_searched_for_is_asked_for_nowhere(page: "Page") -> None:
    traffic = Traffic(page)
    page.goto(f"search?q={'no id of ours '}")
    expect(page.get_by_text("No task, schedule, reminder, query or queue has this id.")).to_be_visible()
    traffic.settle()
    assert not [path for path in traffic.paths if "no%20id" in path]


def test_of_two_tabs_that_delete_the_same_task_the_later_is_told(
    page: "Page", browser: "Browser", address: str
) -> None:
    with opened(browser, address) as other:
        for tab in (page, other):
            tab.goto("tasks/dead?queue=toString")
            tab.get_by_role("button", name="Delete…").click()
            expect(tab.get_by_role("dialog").locator(".effect")).to_contain_text("cannot be brought back")
        for tab in (page, other):
            tab.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
        expect(other.get_by_role("dialog").get_by_role("alert")).to_contain_text("has no task dead")
        other.get_by_role("dialog").get_by_role("button", name="Leave it").click()
        expect(other.get_by_role("dialog")).to_have_count(0)


def test_of_two_tabs_that_change_the_same_schedule_the_later_is_told(
    page: "Page", browser: "Browser", address: str
) -> None:
    with opened(browser, address) as other:
        for tab in (page, other):
            tab.goto("schedules/-")
            tab.get_by_role("button", name="Change…").click()
            tab.get_by_role("dialog").get_by_label("Jitter").fill("PT5S")
            expect(tab.get_by_role("dialog").locator(".effect")).to_contain_text("Changes jitter")
        for tab in (page, other):
            tab.get_by_role("dialog").get_by_role("button", name="Change", exact=True).click()
        expect(page.get_by_role("dialog").locator(".note.good")).to_contain_text("Version 2.")
        expect(other.get_by_role("dialog").get_by_role("alert")).to_contain_text("version")
