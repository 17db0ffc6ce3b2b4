"""The operators' page over time: it updates by itself, in small requests, and stays of use where no answer comes."""

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from duecourse.testing import Duecourse
from tests.support.browser import Traffic, needs_browser, opened
from tests.support.wait import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = [pytest.mark.slow, needs_browser]

BEAT_MS = 2_000
HIDE = """hidden => {
  Object.defineProperty(document, "hidden", {configurable: true, get: () => hidden});
  document.dispatchEvent(new Event("visibilitychange"));
}"""
AWAY = {"title": "The store does not answer.", "status": 503, "detail": "no store at redis://lost"}


@pytest.fixture
def page(browser: "Browser", address: str) -> "Iterator[Page]":
    with opened(browser, address, ignores=("503", "ERR_")) as made:
        made.clock.install()
        yield made


@pytest.fixture
def traffic(page: "Page") -> Traffic:
    return Traffic(page)


def shown(page: "Page", traffic: Traffic, path: str = "") -> None:
    """Open a view, and wait for all that it loads at once. Its timers then move by `clock.run_for` alone."""
    page.goto(path)
    expect(page.locator(".findings").first).to_be_visible()
    traffic.settle()
    page.clock.pause_at(page.evaluate("Date.now()") / 1_000 + 1)
    traffic.settle()


def beats(page: "Page", traffic: Traffic, number: int) -> None:
    for _ in range(number):
        page.clock.run_for(BEAT_MS)
        traffic.settle()


def test_the_overview_asks_at_most_once_in_two_seconds(page: "Page", traffic: Traffic, day: Duecourse) -> None:
    for n in range(6):
        day.add("invoice", {"n": n}, queue=f"letters-{n}", retry={"max_attempts": 1})
    day.advance(0)
    shown(page, traffic)
    traffic.paths.clear()
    beats(page, traffic, 10)
    for n in range(40):
        day.add("mail", {}, queue="mail", id=f"later-{n}", delay="P1D")  # another queue is the fullest now
    beats(page, traffic, 10)
    assert 15 <= len(traffic.paths) <= 20
    assert traffic.paths.count("/queues") >= 4, "the queues are not held up by what takes many requests"


def test_a_change_elsewhere_is_seen_without_a_reload(page: "Page", traffic: Traffic, day: Duecourse) -> None:
    shown(page, traffic, "queues/full")
    expect(page.get_by_role("link", name="8", exact=True)).to_be_visible()
    day.add("report", {}, queue="full", id="one-more")
    beats(page, traffic, 3)
    expect(page.get_by_role("link", name="9", exact=True)).to_be_visible()


def test_a_hidden_tab_asks_nothing_and_a_seen_one_asks_again(page: "Page", traffic: Traffic) -> None:
    shown(page, traffic)
    page.evaluate(HIDE, True)
    traffic.paths.clear()
    beats(page, traffic, 10)
    assert traffic.paths == []
    page.evaluate(HIDE, False)
    beats(page, traffic, 3)
    assert traffic.paths


def no_store(page: "Page") -> Callable[[], None]:
    def answer(route: "Route") -> None:
        route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(AWAY))

    page.route("**/api/**", answer)
    return lambda: page.unroute("**/api/**", answer)


def test_a_place_that_is_away_is_said_and_asked_less_and_less_often(page: "Page", traffic: Traffic) -> None:
    shown(page, traffic)
    back = no_store(page)
    beats(page, traffic, 4)
    lost = page.locator(".lost")
    expect(lost).to_contain_text("No answer since")
    expect(lost).to_contain_text("no store at redis://lost")
    expect(page.locator(".findings").first).to_be_visible()
    traffic.paths.clear()
    beats(page, traffic, 60)
    assert 3 <= len(traffic.paths) <= 7, "after 4, 8, 16, 32 and 60 seconds"
    back()
    lost.get_by_role("button", name="Try now").click()
    expect(lost).to_have_count(0)


def test_a_page_that_opens_while_the_place_is_away_comes_to_life_by_itself(page: "Page", traffic: Traffic) -> None:
    back = no_store(page)
    page.goto("")
    expect(page.locator(".lost")).to_contain_text("no store at redis://lost")
    back()
    for _ in range(3):
        page.clock.run_for(5_000)
        traffic.settle()
    expect(page.locator(".lost")).to_have_count(0)
    expect(page.locator(".findings").first).to_be_visible()


def test_a_network_that_stalls_is_said_and_holds_up_nothing(page: "Page", traffic: Traffic) -> None:
    shown(page, traffic)
    stalled: list[Route] = []

    def stall(route: "Route") -> None:
        stalled.append(route)

    page.route("**/api/**", stall)
    page.clock.run_for(4 * BEAT_MS)
    until(lambda: page.evaluate("1") and stalled)
    page.clock.run_for(4 * BEAT_MS)
    assert len(stalled) == 1, "one request waits, and no other joins it"
    page.clock.run_for(4 * BEAT_MS)
    expect(page.locator(".lost")).to_contain_text("There was no answer within 15 seconds.")
    page.unroute("**/api/**")
    page.get_by_role("link", name="Limits").click()
    page.clock.run_for(100)
    expect(page.get_by_role("heading", level=1)).to_have_text("Limits")
    expect(page.locator(".lost")).to_have_count(0)
    expect(page.get_by_role("region", name="Limits")).to_be_visible()


def test_an_action_whose_answer_is_lost_is_done_once(page: "Page", day: Duecourse) -> None:
    before = len(day.tasks(queue="partner"))
    page.goto("schedules/sync?queue=partner")
    lost: list[str] = []

    def cut(route: "Route") -> None:
        lost.append(route.request.headers["idempotency-key"])
        if len(lost) == 1:
            route.fetch()
            route.abort()
        else:
            route.continue_()

    page.route("**/run**", cut)
    page.get_by_role("button", name="Run now…").click()
    page.get_by_role("dialog").get_by_role("button", name="Run now").click()
    expect(page.get_by_role("dialog").locator(".note.good")).to_contain_text("Added: sync@")
    assert len(lost) == 2
    assert len(set(lost)) == 1
    assert len(day.tasks(queue="partner")) == before + 1


def test_a_task_that_is_deleted_elsewhere_stays_shown_with_a_word(
    page: "Page", traffic: Traffic, day: Duecourse
) -> None:
    page.goto("tasks/invoice-3?queue=invoices")
    expect(page.locator(".why")).to_contain_text("Died")
    traffic.settle()
    day.client.cancel("invoice-3", queue="invoices")
    beats(page, traffic, 3)
    expect(page.get_by_role("alert")).to_contain_text(re.compile("Queue invoices has no task invoice-3. It was there"))
