"""Each view of the operators' page in a real browser: what it shows of a bad day, by its own address."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from duecourse.testing import Duecourse
from tests.support.bad_day import MARKUP, bad_day
from tests.support.browser import needs_browser, opened, read, served
from tests.support.wait import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.slow, needs_browser]

KEY_ERROR = "dead/invoices?kind=invoice&error=KeyError"
VIEWS = {
    "overview": ("", "What is wrong"),
    "queue": ("queues/partner", "Queue partner"),
    "tasks": ("tasks?queue=default", "future-0"),
    "dead task": ("tasks/invoice-0?queue=invoices", "Died"),
    "waiting task": ("tasks/mail-3?queue=mail", "its queue is paused"),
    "dead": ("dead", "60 dead tasks in 1 queue"),
    "group of the dead": (KEY_ERROR, "Dead in invoices"),
    "schedules": ("schedules", "What fires next"),
    "calendar": ("schedules?show=calendar", "Five weeks"),
    "schedule": ("schedules/nightly", "At 02:30"),
    "reminders": ("reminders", "Meetings with messages to come"),
    "reminder": ("reminders/board", "Who is told when"),
    "series": ("reminders/standup", "Comes again"),
    "queries": ("queries", "No query so far."),
    "limits": ("limits", "what that holds back now"),
    "search": ("search?q=nightly", "1 found."),
    "no view": ("nowhere/at/all", "There is no such view."),
}


@pytest.fixture(scope="module")
def day() -> Iterator[Duecourse]:
    with bad_day(scheduled=900) as made:
        yield made


@pytest.fixture
def page(browser: "Browser", address: str) -> "Iterator[Page]":
    with opened(browser, address) as made:
        yield made


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_opens_by_its_address(page: "Page", view: str) -> None:
    path, shows = VIEWS[view]
    page.goto(path)
    expect(page.locator("body")).to_contain_text(shows)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page itself never scrolls sideways"


def test_the_overview_says_what_is_wrong_since_when_and_why(page: "Page") -> None:
    page.goto("")
    wrong = page.locator(".wrong")
    expect(wrong.get_by_role("listitem")).to_have_count(5)
    for text in (
        "40 dead in invoices: ConnectionError: #",
        "20 dead in invoices: KeyError: 'customer-#'",
        "mail is paused, and late by",
        "full is late by",
        "partner is late by",
        "its queue runs as many tasks as max_running allows",
        "its queue has claimed as many tasks as its rate allows",
    ):
        expect(wrong).to_contain_text(text)
    queues = page.get_by_role("region", name="Queues")
    expect(queues.get_by_role("row", name=re.compile("^full"))).to_contain_text("2/2")
    expect(page.get_by_role("img", name=re.compile("Tasks that come due"))).to_be_visible()


def test_a_quiet_ledger_says_that_nothing_is_wrong(browser: "Browser") -> None:
    with Duecourse() as quiet, served(quiet) as address, opened(browser, address) as page:
        page.goto("")
        expect(page.locator(".wrong")).to_contain_text("Nothing: no queue is late or paused")
        expect(page.get_by_text("No queue yet")).to_be_visible()
        for view in ("tasks", "dead", "schedules", "reminders", "limits"):
            page.goto(view)
            expect(page.locator("main")).to_contain_text(re.compile(r"No (queue|task|schedule|message)"))


def test_a_task_shows_its_life_its_payload_and_its_result(page: "Page") -> None:
    page.goto("tasks/report-1?queue=default")
    expect(page.get_by_role("img", name=re.compile("History of the task: 1 run"))).to_be_visible()
    expect(page.locator(".timeline")).to_contain_text("Added by client")
    expect(page.locator(".mask")).to_have_text(["••• masked"])
    result = page.locator(".panel", has_text="Result")
    expect(result).not_to_contain_text("n: 79")
    result.locator("summary", has_text="[ 80 items ]").click()
    result.get_by_role("button", name="30 more").click()
    expect(result.locator("summary", has_text="79: { 1 field }")).to_be_attached()
    result.get_by_role("button", name="760 more characters").click()
    expect(result.get_by_text("long " * 200)).to_be_visible()


def test_links_lead_from_a_task_to_what_it_belongs_to(page: "Page") -> None:
    page.goto("schedules/sync?queue=partner")
    page.locator("a.id", has_text="scheduled").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("sync@")
    page.get_by_role("definition").get_by_role("link", name="sync", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("sync")
    page.goto("reminders/board")
    page.get_by_role("link", name=re.compile("board:3600")).first.click()
    page.get_by_role("link", name="board", exact=True).click()
    expect(page.get_by_text("Who is told when")).to_be_visible()


def test_markup_in_payloads_errors_and_names_is_shown_as_text(page: "Page") -> None:
    for path in (
        "",
        "tasks/report-1?queue=default",
        "tasks/invoice-1?queue=invoices",
        "dead",
        "reminders/board",
        "tasks?queue=invoices",
    ):
        page.goto(path)
        expect(page.locator("main").get_by_text("<b>bold</b>").first).to_be_attached()
        assert page.locator("main img").count() == 0
        assert page.evaluate("window.hacked") is None
    page.goto("reminders/board")
    page.get_by_role("button", name="Write them out").click()
    expect(page.locator(".messages")).to_contain_text(f"Board {MARKUP}")


def test_tasks_are_found_by_filters_that_the_address_keeps(page: "Page") -> None:
    page.goto("tasks?queue=invoices")
    page.get_by_role("button", name="dead 60").click()
    page.get_by_label("Error").fill("KeyError: #")
    expect(page.get_by_role("toolbar")).to_contain_text("20 tasks")
    assert "state=dead" in page.url
    page.reload()
    expect(page.get_by_label("Error")).to_have_value("KeyError: #")
    expect(page.get_by_role("toolbar")).to_contain_text("20 tasks")
    page.get_by_label("Kind").fill("nothing")
    expect(page.get_by_text("No task fits")).to_be_visible()


def test_of_many_tasks_those_alone_that_are_seen_are_in_the_page(page: "Page") -> None:
    page.goto("tasks?queue=default&state=scheduled")
    rows = page.get_by_role("table", name="Tasks")
    expect(page.get_by_role("toolbar")).to_contain_text("400 tasks and more")
    rows.focus()

    def whole() -> bool:
        page.keyboard.press("End")
        return "901 tasks" in page.get_by_role("toolbar").inner_text()

    until(whole)
    page.keyboard.press("End")
    expect(rows.get_by_role("link", name="future-899", exact=True)).to_be_visible()
    assert rows.get_by_role("row").count() < 80
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("future-899")
    page.go_back()
    expect(rows).to_be_visible()


def test_a_search_finds_an_id_wherever_it_is(page: "Page") -> None:
    page.goto("limits")
    expect(page.locator("main h1")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("mail-3")
    page.keyboard.press("Enter")
    found = page.locator(".list")
    expect(found).to_contain_text("task mail-3")
    found.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("mail-3")
    page.goto("search?q=nobody")
    expect(page.get_by_text("No task, schedule, reminder, query or queue has this id.")).to_be_visible()


def test_keys_lead_to_views_and_a_list_of_them_can_be_read(page: "Page") -> None:
    page.goto("")
    expect(page.locator(".wrong")).to_be_visible()
    for key, title in {
        "s": "Schedules",
        "d": "Dead tasks",
        "t": "Tasks",
        "r": "Reminders",
        "q": "Queries",
        "l": "Limits",
    }.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("search by id")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_times_are_in_the_readers_zone_with_utc_on_hover(page: "Page", address: str) -> None:
    page.goto("schedules/nightly")
    at = read(address, "/schedules/nightly")["schedule"]["next"][0]["at"]
    time = page.locator(".upcoming time").first
    expect(time).to_have_attribute("datetime", at)
    expect(time).to_contain_text("02:30")
    expect(time).to_have_attribute("title", re.compile(at))


def test_a_calendar_and_a_timeline_mark_the_changes_of_the_clocks(page: "Page") -> None:
    page.goto("schedules?span=1y")
    expect(page.locator(".panel .warn").first).to_contain_text(
        re.compile("Clocks of Europe/Vienna go forward by 1 h: Sun .* 03:00")
    )
    expect(page.get_by_role("img", name=re.compile("default nightly: [0-9]+ times"))).to_be_visible()
    expect(page.locator(".lane circle.changed").first).to_be_attached()
    page.get_by_role("button", name="calendar").click()
    expect(
        page.get_by_role("list", name="Calendar of what fires").get_by_role("link", name="weekdays").first
    ).to_be_visible()


def numbers(at: str, done: int, late: list[int]) -> dict[str, Any]:
    """A line of a queue's history, as `GET /queues/{queue}/history` answers it."""
    times = {"p50": None, "p99": None, "counts": late}
    counts = {"added": 7, "claimed": done, "done": done, "again": 0, "retried": 0, "dead": 0}
    return {"at": at, **counts, "lateness": times, "run_time": times, "wait": times}


def test_numbers_over_time_are_drawn_and_add_up_over_queues(page: "Page") -> None:
    lines = [numbers("2026-11-28T10:00:00.000Z", 4, [0, 0, 9, 1]), numbers("2026-11-28T10:01:00.000Z", 2_000, [])]
    page.route("**/api/queues/*/history?span=1h", lambda route: route.fulfill(json={"lines": lines}))
    page.goto("")
    panel = page.locator(".panel", has_text="Over time")
    expect(panel.locator("canvas")).to_have_count(2)
    panel.get_by_text("As a table").click()
    row = panel.get_by_role("row").last
    expect(row.get_by_role("cell")).to_have_text(["42", "24", "0", "0", "4 ms", "8 ms"])  # of six queues
    page.unroute("**/api/queues/*/history?span=1h")
    page.goto("limits")
    page.goto("")
    expect(page.get_by_role("region", name="Queues")).to_be_visible()


@pytest.mark.matrix
def test_a_phone_sees_the_same(browser: "Browser", address: str) -> None:
    with opened(browser, address, width=390, has_touch=True) as page:
        for path, shows in VIEWS.values():
            page.goto(path)
            expect(page.locator("body")).to_contain_text(shows)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
