"""Every action of the operators' page in a real browser: it says what it will do, asks, and shows the result."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import expect

from duecourse.testing import Duecourse
from tests.support.browser import needs_browser, opened, read

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.slow, needs_browser]

ZONE = "Africa/Lagos"
"""A zone whose clocks never change: a time that is typed is one instant, on every day of the year."""


@pytest.fixture
def page(browser: "Browser", address: str) -> "Iterator[Page]":
    with opened(browser, address, zone=ZONE) as made:
        yield made


def act(page: "Page", button: str, says: str, confirm: str, result: str, **fields: str | bool) -> None:
    """Press a button of an action, fill its fields, read what it says, confirm, and read the result."""
    page.get_by_role("button", name=button, exact=True).first.click()
    dialog = page.get_by_role("dialog")
    for name, value in fields.items():
        field = dialog.locator(f"[name={name}]")
        if isinstance(value, bool):
            field.set_checked(value)
        elif field.evaluate("node => node.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    expect(dialog.locator(".effect")).to_contain_text(says)
    dialog.get_by_role("button", name=confirm, exact=True).click()
    expect(dialog.locator(".note.good")).to_contain_text(result)
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)


def state(day: Duecourse, id: str, queue: str = "default") -> str:
    return day.client.get(id, queue=queue).status.value


def due_at(day: Duecourse, id: str, queue: str = "default") -> datetime:
    return datetime.fromtimestamp(day.client.get(id, queue=queue).due_at / 1_000, UTC)


def dead(day: Duecourse, error: str = "") -> list[str]:
    return [task.id for task in day.tasks(queue="invoices", state="dead") if error in task.error]


def local(at: datetime) -> str:
    """An instant as a field of the browser takes it."""
    return at.astimezone(ZoneInfo(ZONE)).strftime("%Y-%m-%dT%H:%M")


def test_a_queue_is_paused_and_resumed(page: "Page", day: Duecourse) -> None:
    page.goto("queues/default")
    act(page, "Pause…", "No further task is claimed until you resume it", "Pause", "default is paused.")
    assert day.client.get_queue("default").settings.paused
    expect(page.locator(".findings")).to_contain_text("default is paused")
    act(page, "Resume…", "Due tasks are claimed at once, without a limit of the queue", "Resume", "default is resumed.")
    assert not day.client.get_queue("default").settings.paused


def test_a_limit_is_changed_from_the_finding_that_names_it(page: "Page", day: Duecourse) -> None:
    page.goto("queues/full")
    changed = "full is changed. 2 tasks running now."
    act(page, "Change the limit…", "max_running: 2 → 5: 3 more than now may run", "Change", changed, max_running="5")
    assert day.client.get_queue("full").settings.max_running == 5


def test_a_wrong_setting_is_answered_in_the_apis_own_words(page: "Page", day: Duecourse) -> None:
    page.goto("limits")
    page.get_by_role("row", name=re.compile("^mail")).get_by_role("button", name="Change…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Rate").fill("often")
    expect(dialog.locator(".effect")).to_contain_text("rate: no limit → often")
    dialog.get_by_role("button", name="Change", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("Some fields are wrong.")
    expect(dialog.locator(".problem")).to_contain_text("must be")
    dialog.get_by_label("Rate").fill("7/s")
    expect(dialog.get_by_role("alert")).to_have_count(0)
    dialog.get_by_role("button", name="Change", exact=True).click()
    expect(dialog.locator(".note.good")).to_contain_text("mail is changed.")
    assert day.client.get_queue("mail").settings.rate is not None


def test_what_is_not_confirmed_is_not_done(page: "Page", day: Duecourse) -> None:
    page.goto("tasks/future-0")
    for leave in ("Leave it", "Escape"):
        page.get_by_role("button", name="Cancel…").click()
        expect(page.get_by_role("dialog").locator(".effect")).to_contain_text("It never runs again.")
        if leave == "Escape":
            page.keyboard.press(leave)
        else:
            page.get_by_role("button", name=leave).click()
        expect(page.get_by_role("dialog")).to_have_count(0)
    assert state(day, "future-0") == "scheduled"


def test_a_task_is_run_now_moved_and_cancelled(page: "Page", day: Duecourse) -> None:
    page.goto("tasks/future-1")
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).replace(second=0, microsecond=0)
    act(page, "Move…", "It runs in", "Move", "Due at", due=local(tomorrow))
    assert due_at(day, "future-1") == tomorrow
    act(page, "Run now…", "It becomes due at once, in place of", "Run now", "Due since")
    assert due_at(day, "future-1") <= day.now
    act(page, "Cancel…", "It never runs again.", "Cancel the task", "The task is cancelled.")
    assert state(day, "future-1") == "cancelled"
    expect(page.get_by_role("heading", level=1).locator("..").locator(".chip")).to_have_text("cancelled")


def test_a_running_task_is_taken_from_its_worker_by_an_own_word_only(page: "Page", day: Duecourse) -> None:
    ids = [task.id for task in day.tasks(state="leased", queue="full")]
    page.goto(f"tasks/{ids[0]}?queue=full")
    page.get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".effect")).to_contain_text("only by taking it from its worker")
    expect(dialog.get_by_role("button", name="Cancel the task")).to_be_disabled()
    page.keyboard.press("Escape")
    act(page, "Cancel…", "It never runs again.", "Cancel the task", "The task is cancelled.", force=True)
    page.goto(f"tasks/{ids[1]}?queue=full")
    later = datetime.now(UTC) + timedelta(days=1)
    act(page, "Move…", "It runs in", "Move", "Due at", due=local(later), force=True)
    assert [state(day, id, "full") for id in ids] == ["cancelled", "scheduled"]


def test_a_dead_task_is_replayed_another_deleted(page: "Page", day: Duecourse) -> None:
    page.goto("tasks/invoice-0?queue=invoices")
    act(page, "Replay…", "It is due at once, with all of its 1 attempt.", "Replay now", "It is scheduled again")
    assert state(day, "invoice-0", "invoices") == "scheduled"
    page.goto("tasks/invoice-3?queue=invoices")
    act(page, "Delete…", "and cannot be brought back", "Delete", "The task is deleted.")
    assert "invoice-3" not in [task.id for task in day.tasks(queue="invoices")]


def test_tasks_that_were_chosen_are_acted_on(page: "Page", day: Duecourse) -> None:
    page.goto("tasks?queue=default&state=scheduled")
    rows = page.get_by_role("table", name="Tasks")
    for n in (3, 4):
        rows.get_by_role("checkbox", name=f"Choose future-{n}", exact=True).check()
    act(page, "Run now…", "2 tasks of 2 are scheduled.", "Run 2 tasks", "Moved 2 of 2 tasks.")
    assert all(due_at(day, f"future-{n}") <= day.now for n in (3, 4))
    for n in (3, 4):
        rows.get_by_role("checkbox", name=f"Choose future-{n}", exact=True).check()
    act(page, "Cancel…", "None of them runs again.", "Cancel 2 tasks", "Cancelled 2 of 2 tasks.")
    assert [state(day, f"future-{n}") for n in (3, 4)] == ["cancelled", "cancelled"]


def test_all_tasks_that_match_are_cancelled_or_deleted(page: "Page", day: Duecourse) -> None:
    for n in range(3):
        day.add("mail", {"n": n}, id=f"letter-{n}", delay="P1D")
    page.goto("tasks?queue=default&state=scheduled&kind=mail")
    expect(page.get_by_role("toolbar")).to_contain_text("3 tasks")
    act(page, "Cancel all that match…", "3 tasks would be cancelled", "Cancel 3 tasks", "Cancelled 3 tasks.")
    expect(page.get_by_text("No task fits")).to_be_visible()
    page.goto("tasks?queue=default&state=cancelled&kind=mail")
    act(page, "Delete all that match…", "3 tasks would be deleted", "Delete 3 tasks", "Deleted 3 tasks.")
    assert not day.tasks(queue="default", state="cancelled", kind="mail")


def test_dead_tasks_that_were_chosen_are_replayed_or_deleted(page: "Page", day: Duecourse) -> None:
    page.goto("dead/invoices?kind=invoice&error=KeyError")
    rows = page.get_by_role("table", name="Dead tasks")
    rows.get_by_role("checkbox", name="Choose invoice-6", exact=True).check()
    act(page, "Replay chosen…", "Each is due at once", "Replay 1 task", "Replayed 1 of 1 task.")
    rows.get_by_role("checkbox", name="Choose invoice-9", exact=True).check()
    act(page, "Delete chosen…", "cannot be brought back", "Delete 1 task", "Deleted 1 of 1 task.")
    assert state(day, "invoice-6", "invoices") == "scheduled"
    assert "invoice-9" not in [task.id for task in day.tasks(queue="invoices")]


def test_a_group_of_the_dead_is_replayed_at_a_rate_and_can_be_stopped(page: "Page", day: Duecourse) -> None:
    page.goto("dead")
    group = page.get_by_role("listitem").filter(has_text="ConnectionError")
    group.get_by_role("button", name="Replay…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".effect")).to_contain_text("40 tasks would be replayed, the oldest first")
    dialog.get_by_label("At most").fill("30")
    dialog.get_by_label("Tasks a second").fill("1")
    dialog.get_by_role("button", name="Replay 30 tasks").click()
    expect(dialog.get_by_role("progressbar")).to_have_attribute("value", re.compile("[1-9]"))
    dialog.get_by_role("button", name="Stop").click()
    expect(dialog.locator(".note.good")).to_contain_text(re.compile("Replayed [0-9]+ of 30 tasks, then stopped."))
    left = len(dead(day, "ConnectionError"))
    assert 10 < left < 40
    dialog.get_by_role("button", name="Close").click()
    expect(group).to_contain_text(f"{left} dead")


def test_a_group_of_the_dead_is_replayed_at_once_and_another_deleted(page: "Page", day: Duecourse) -> None:
    page.goto("dead/invoices?kind=invoice&error=ConnectionError")
    left = len(dead(day, "ConnectionError"))
    replayed = f"Replayed {left} of {left} tasks."
    act(page, "Replay all…", "They are due at once.", f"Replay {left} tasks", replayed, rate="")
    expect(page.get_by_text("No dead task of this error is left.")).to_be_visible()
    page.goto("dead/invoices")
    left = len(dead(day))
    act(page, "Delete all…", f"{left} tasks would be deleted", f"Delete {left} tasks", f"Deleted {left} tasks.")
    assert not dead(day)


def test_a_schedule_is_paused_resumed_and_run(page: "Page", day: Duecourse, address: str) -> None:
    page.goto("schedules/nightly")
    act(page, "Pause…", "Nothing fires until you resume it", "Pause", "It is paused.")
    assert read(address, "/schedules/nightly")["schedule"]["paused"]
    act(page, "Resume…", "It fires again, next by its rule at", "Resume", "It is resumed.")
    assert not read(address, "/schedules/nightly")["schedule"]["paused"]
    act(page, "Run now…", "One occurrence is added now, beside the series", "Run now", "Added: nightly@")
    assert [task for task in day.tasks(queue="default", state="scheduled") if task.id.startswith("nightly@")]


def test_a_rule_is_tried_out_while_it_is_typed(page: "Page", address: str) -> None:
    page.goto("schedules/nightly")
    page.get_by_role("button", name="Change…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".effect")).to_contain_text("No field differs yet.")
    dialog.get_by_label("Rule", exact=True).fill("0 9 * *")
    expect(dialog.locator(".problem")).to_contain_text("must have five fields")
    dialog.get_by_label("Rule", exact=True).fill("0 9 * * MON-FRI")
    expect(dialog.locator(".effect")).to_contain_text("At 09:00, Monday through Friday")
    expect(dialog.locator(".upcoming li")).to_have_count(5)
    dialog.get_by_label("Payload").fill('{"month": ')
    expect(dialog.locator(".effect")).to_contain_text("The payload is not JSON.")
    dialog.get_by_label("Payload").fill('{"month": "2026-12"}')
    expect(dialog.locator(".effect")).to_contain_text("Changes repeat, payload")
    dialog.get_by_role("button", name="Change", exact=True).click()
    expect(dialog.locator(".note.good")).to_contain_text("Version")
    changed = read(address, "/schedules/nightly")["schedule"]
    assert (changed["repeat"], changed["payload"]) == ({"cron": "0 9 * * MON-FRI"}, {"month": "2026-12"})


def test_a_change_of_a_schedule_that_another_changed_meanwhile_is_not_made(
    page: "Page", day: Duecourse, address: str
) -> None:
    page.goto("schedules/weekdays?queue=mail")
    page.get_by_role("button", name="Change…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Time zone").fill("Europe/London")
    expect(dialog.locator(".effect")).to_contain_text("Changes time_zone")
    day.client.schedules.change("weekdays", queue="mail", time_zone="UTC")
    dialog.get_by_role("button", name="Change", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("has another version than")
    assert read(address, "/schedules/weekdays?queue=mail")["schedule"]["time_zone"] == "UTC"


def test_a_schedule_is_backfilled_and_another_deleted(page: "Page", day: Duecourse, address: str) -> None:
    page.goto("schedules/hourly")
    first, last = (local(day.now - timedelta(minutes=n)) for n in (270, 90))
    says = "3 occurrences would be added"
    act(page, "Backfill…", says, "Backfill", "3 occurrences are being added.", **{"from": first, "to": last})
    page.goto("schedules/doomed")
    act(page, "Delete…", "No further occurrence comes", "Delete", "It is deleted.")
    expect(page.get_by_role("heading", level=1)).to_have_text("Schedules")
    assert read(address, "/schedules/doomed")["status"] == 404


def test_a_reminder_is_moved_and_cancelled(page: "Page", day: Duecourse) -> None:
    later = (day.now + timedelta(days=2)).replace(second=0, microsecond=0)
    page.goto("reminders/board")
    act(page, "Move…", "2 messages to come move along.", "Move", "2 messages moved.", starts_at=local(later))
    assert due_at(day, "board:3600:0", "reminders") == later - timedelta(hours=1)
    act(page, "Cancel…", "2 messages to come are cancelled.", "Cancel the reminder", "It is cancelled.")
    assert state(day, "board:3600:0", "reminders") == "cancelled"


def test_one_start_of_a_series_is_moved_another_cancelled(page: "Page", day: Duecourse) -> None:
    page.goto("reminders/standup")
    starts = page.locator(".upcoming").first.get_by_role("listitem")
    starts.nth(1).get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".effect")).to_contain_text("The others stay.")
    dialog.get_by_role("button", name="Cancel this start").click()
    expect(dialog.locator(".note.good")).to_contain_text("It is cancelled.")
    dialog.get_by_role("button", name="Close").click()
    changed = page.locator(".panel", has_text="changed by hand").last
    expect(changed).to_contain_text("cancelled")
    starts.nth(1).get_by_role("button", name="Move…").click()
    dialog.locator("[name=starts_at]").fill(local(day.now + timedelta(days=9)))
    expect(dialog.locator(".effect")).to_contain_text("This start moves to")
    dialog.get_by_role("button", name="Move", exact=True).click()
    expect(dialog.locator(".note.good")).to_contain_text("It is moved.")
    dialog.get_by_role("button", name="Close").click()
    expect(changed).to_contain_text("moved")


def test_a_query_is_asked_again_and_stopped(page: "Page", day: Duecourse) -> None:
    day.answers("https://slow.example.com/report", status=202, json={"state": "working"})
    asked = day.client.query(url="https://slow.example.com/report", until="state == 'done'", interval="PT1H")
    page.goto("queries")
    expect(page.get_by_role("rowheader", name="slow.example.com")).to_be_visible()
    page.get_by_label("Id", exact=True).fill(asked.id)
    page.get_by_role("button", name="Open").click()
    expect(page.locator(".chip")).to_have_text("processing")
    act(page, "Ask now…", "It becomes due at once", "Run now", "Due since")
    act(page, "Stop…", "It never runs again.", "Cancel the task", "The task is cancelled.")
    expect(page.locator(".chip")).not_to_have_text("processing")
