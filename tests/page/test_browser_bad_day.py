"""A bad day lived through with the page alone: each cause is found on the overview, and mended from there."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NoReturn

import pytest
from playwright.sync_api import expect

from duecourse import Task
from duecourse.ledger.task import Trigger
from duecourse.testing import Duecourse
from tests.support.browser import Traffic, needs_browser, opened, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = [pytest.mark.slow, needs_browser]

BUSY = "https://busy.example.com/jobs"


def charge(task: Task) -> NoReturn:
    raise ConnectionError(f"order {task.payload['n']} was not charged")


def report(_: Task) -> None:
    pass


@pytest.fixture
def day() -> Iterator[Duecourse]:
    """Half an hour of failures: a stuck task, a schedule behind it, an API that is busy, and dead tasks."""
    now = datetime.now(UTC)
    with Duecourse(start=now - timedelta(minutes=30)) as made:
        made.handle("charge", charge)
        made.handle("report", report)
        for n in range(40):
            made.add("charge", {"n": n}, queue="payments", id=f"charge-{n}", retry={"max_attempts": 1})
        made.answers(BUSY, status=429, headers={"retry-after": "600"}, json={"state": "busy"})
        for n in range(3):
            made.add(
                "poll", {"url": BUSY, "until": "state == 'done'", "interval": "PT1M"}, queue="partner", id=f"poll-{n}"
            )
        made.client.set_queue("jobs", create=True, max_running=1)
        made.add("report", {}, queue="jobs", id="stuck")
        [shard] = [one for one in made._ledger.shards() if one.queue == "jobs"]
        made._ledger.claim(shard, 1, lease_ms=7_200_000, trigger=Trigger.RING)
        made.client.schedules.add(id="close", kind="report", payload={}, repeat={"every": "PT10M"}, queue="jobs")
        made.advance(now)
        yield made


@pytest.fixture
def page(browser: "Browser", day: Duecourse) -> "Iterator[Page]":
    with served(day) as address, opened(browser, address, ignores=("503", "ERR_")) as made:
        yield made


def test_tasks_that_fail_and_try_again_are_spoken_of_before_they_die(page: "Page") -> None:
    for view in ("", "queues/partner"):
        page.goto(view)
        failing = page.locator(".finding", has_text="fail in partner")
        expect(failing).to_contain_text(
            "3 fail in partner, and try again: GET https://busy.example.com/jobs answered 429"
        )
        expect(failing).to_contain_text(re.compile("poll-[0-9], attempt [3-9] of 10"))
    failing.get_by_role("link", name=re.compile("poll-")).click()
    expect(page.locator(".why")).to_contain_text(re.compile("That is attempt [3-9] of 10: the last run failed."))


def test_the_task_that_fills_a_queue_is_found_and_taken_from_its_worker(page: "Page", day: Duecourse) -> None:
    page.goto("")
    full = page.locator(".finding", has_text="jobs is late by")
    full.get_by_role("link", name="1 running").click()
    page.get_by_role("link", name="stuck", exact=True).click()
    expect(page.locator(".life rect.run")).to_have_count(1)
    expect(page.locator(".life circle.run")).to_have_count(0)
    page.get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".effect")).to_contain_text("it can be cancelled only by taking it from its worker")
    dialog.get_by_label("Take it from its worker").check()
    dialog.get_by_role("button", name="Cancel the task").click()
    expect(dialog.locator(".note.good")).to_have_text("The task is cancelled.")
    day.advance("PT1S")
    assert day.client.get_queue("jobs").oldest_overdue_ms == 0


def test_a_late_schedule_is_seen_in_the_list_and_says_why(page: "Page") -> None:
    page.goto("schedules")
    row = page.get_by_role("row", name=re.compile("close"))
    expect(row.get_by_role("cell").first).to_have_text("jobs late")
    row.get_by_role("link", name="close").click()
    expect(page.locator(".why.warn")).to_contain_text(
        re.compile(r"Its occurrence close@\d{4}-\d\d-\d\dT[\d:.]+Z waits")
    )
    expect(page.locator(".upcoming", has_text="late by")).to_be_visible()


def replay(page: "Page", rate: str) -> None:
    page.goto("dead/payments?kind=charge&error=ConnectionError")
    page.get_by_role("button", name="Replay all…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Tasks a second").fill(rate)
    dialog.get_by_role("button", name="Replay 40 tasks").click()


def test_a_list_of_dead_tasks_is_read_again_after_a_replay(page: "Page") -> None:
    replay(page, "")
    expect(page.get_by_role("dialog").locator(".note.good")).to_have_text("Replayed 40 of 40 tasks.")
    page.keyboard.press("Escape")
    expect(page.get_by_text("No dead task of this error is left.")).to_be_visible()
    expect(page.get_by_role("table", name="Dead tasks")).to_have_count(0)


def test_a_replay_that_is_cut_off_says_how_far_it_came_and_goes_on_with_the_rest(page: "Page") -> None:
    sent: list[str] = []

    def cut(route: "Route") -> None:
        body = json.loads(route.request.post_data or "{}")
        sent.append(route.request.url)
        if body.get("dry_run") or len(sent) < 4:
            route.continue_()
        else:
            route.abort()

    page.route("**/dead/replay", cut)
    replay(page, "10")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text(
        re.compile(r"Replayed (0|20) of 40, then it failed: The page's server does not answer.")
    )
    page.unroute("**/dead/replay")
    dialog.get_by_role("button", name=re.compile("Replay (20|40) tasks")).click()
    expect(dialog.locator(".note.good")).to_contain_text("Replayed")
    page.keyboard.press("Escape")
    expect(page.get_by_text("No dead task of this error is left.")).to_be_visible()


def test_one_request_that_fails_ends_an_action_on_many(page: "Page") -> None:
    page.goto("tasks?queue=payments&state=dead")
    page.get_by_role("button", name="Choose these 40").click()
    page.get_by_role("button", name="Delete…", exact=True).click()
    seen: list[str] = []

    def cut(route: "Route") -> None:
        seen.append(route.request.url)
        if "charge-2?" in route.request.url:
            route.abort()
        else:
            route.continue_()

    page.route("**/api/tasks/charge-*", cut)
    dialog = page.get_by_role("dialog")
    traffic = Traffic(page)
    dialog.get_by_role("button", name="Delete 40 tasks").click()
    expect(dialog.get_by_role("alert").first).to_contain_text(re.compile("Deleted [0-9]+ of 40, then it failed"))
    traffic.settle()
    expect(dialog.get_by_role("button", name="Leave it")).to_be_enabled()
    assert len(seen) < 30, "the others are left alone"


GATEWAYS = {
    "a message": ({"message": "The incoming token has expired"}, "The incoming token has expired"),
    "no word": ({}, "The API rejects the credentials of the page's server."),
    "the page's own": ({"type": "urn:duecourse:problem:page-key", "detail": "-"}, "The key of this page is no longer"),
}


@pytest.mark.parametrize("rejects", GATEWAYS)
def test_a_rejection_by_a_gateway_is_told_in_its_own_words(page: "Page", rejects: str) -> None:
    answer, text = GATEWAYS[rejects]
    page.route("**/api/**", lambda route: route.fulfill(status=401, json=answer))
    page.goto("")
    expect(page.locator(".lost")).to_contain_text(text)
