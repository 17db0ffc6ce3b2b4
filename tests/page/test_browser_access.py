"""Who looks at the operators' page: readers without rights, behind a proxy, with a screen reader, in either theme."""

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from duecourse import Client
from duecourse.testing import Duecourse
from tests.support.browser import Traffic, needs_browser, opened, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.slow, needs_browser]

VIEWS = (
    "", "queues/full", "tasks?queue=default", "tasks/report-1", "tasks/invoice-0?queue=invoices", "tasks/slow-job",
    "dead", "dead/invoices?kind=invoice&error=KeyError", "schedules", "schedules?show=calendar", "schedules/nightly",
    "reminders", "reminders/board", "reminders/standup", "queries", "limits", "search?q=nightly",
)  # fmt: skip
ACTIONS = re.compile("…$")
"""Every button of an action ends so: it asks before it acts."""
AXE = "rules => axe.run(document, {resultTypes: ['violations'], ...rules}).then(found => found.violations)"
CONTRAST = "color-contrast"
ALL_BUT_CONTRAST = {"rules": {CONTRAST: {"enabled": False}}}


def loaded(page: "Page", path: str) -> None:
    """Open a view, and wait for all that it loads at once."""
    traffic = Traffic(page)
    page.goto(path)
    expect(page.locator("main h1").first).to_be_attached()
    expect(page.get_by_text("Loading…")).to_have_count(0)
    traffic.settle()


@cache
def axe() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text()


def violations(page: "Page", rules: dict[str, Any]) -> list[str]:
    page.evaluate(axe())
    found: list[dict[str, Any]] = page.evaluate(AXE, rules)
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"][:3]]


def faults(browser: "Browser", day: Duecourse, theme: str, rules: dict[str, Any]) -> Iterator[str]:
    """Faults of accessibility of each view, and of a dialog."""
    with served(day) as address, opened(browser, address, theme=theme) as page:
        for path in VIEWS:
            loaded(page, path)
            yield from (f"{path}: {fault}" for fault in violations(page, rules))
        loaded(page, "schedules/nightly")
        page.get_by_role("button", name="Change…").click()
        expect(page.get_by_role("dialog").locator(".effect")).to_contain_text("No field differs yet.")
        yield from (f"dialog: {fault}" for fault in violations(page, rules))


def test_no_view_has_a_fault_of_accessibility(browser: "Browser", day: Duecourse) -> None:
    assert list(faults(browser, day, "light", ALL_BUT_CONTRAST)) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.matrix
def test_every_text_stands_out_in_either_theme(browser: "Browser", day: Duecourse, theme: str) -> None:
    assert list(faults(browser, day, theme, {"runOnly": [CONTRAST]})) == []


def test_the_theme_can_be_chosen_and_is_kept(browser: "Browser", day: Duecourse) -> None:
    with served(day) as address, opened(browser, address) as page:
        loaded(page, "limits")
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.get_by_label("Colours").select_option("dark")
        page.reload()
        expect(page.get_by_label("Colours")).to_have_value("dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light


def test_a_reader_sees_no_button_of_an_action(browser: "Browser", day: Duecourse) -> None:
    with served(day, read_only=True) as address, opened(browser, address) as page:
        for path in VIEWS:
            loaded(page, path)
            expect(page.get_by_text("read only")).to_be_visible()
            assert page.get_by_role("button", name=ACTIONS).count() == 0, path
            assert page.get_by_role("checkbox").count() == 0, path
        loaded(page, "reminders/board")
        page.get_by_role("button", name="Write them out").click()
        expect(page.locator(".messages").first).to_be_visible()
        loaded(page, "schedules")
        expect(page.get_by_role("img", name=re.compile("default nightly: [1-9]"))).to_be_visible()


def test_all_of_it_works_below_a_path(browser: "Browser", day: Duecourse) -> None:
    with served(day, mount="/ops/due") as address, opened(browser, address) as page:
        loaded(page, "")
        for link, title in {"Dead": "Dead tasks", "Schedules": "Schedules", "Limits": "Limits"}.items():
            page.get_by_role("navigation").get_by_role("link", name=link).click()
            expect(page.get_by_role("heading", level=1)).to_have_text(title)
            assert page.url.startswith(f"{address}/"), "every address is below the base"
        loaded(page, "tasks/future-0")
        page.get_by_role("button", name="Run now…").click()
        expect(page.get_by_role("dialog").locator(".effect")).to_contain_text(
            "Limits and a pause of its queue still hold."
        )
        page.get_by_role("dialog").get_by_role("button", name="Run now").click()
        expect(page.get_by_role("dialog").locator(".note.good")).to_be_visible()


def test_the_keyboard_reaches_and_leaves_a_dialog(browser: "Browser", day: Duecourse) -> None:
    with served(day) as address, opened(browser, address) as page:
        loaded(page, "tasks/slow-job")
        page.get_by_role("button", name="Move…").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_label("New due time")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.get_by_role("button", name="Move…")).to_be_focused()


def test_an_operator_looks_at_one_tenant_after_the_other(browser: "Browser", day: Duecourse) -> None:
    acme = Client.from_env(tenant="acme")
    acme.add("invoice", {"n": 3}, queue="invoices", id="theirs", retry={"max_attempts": 1})
    day.advance(0)
    with served(day) as address, opened(browser, address) as page:
        loaded(page, "")
        expect(page.locator(".wrong")).to_contain_text("1 dead in invoices: tasks of other tenants")
        page.locator(".wrong").get_by_role("listitem").filter(has_text="other tenants").get_by_role("link").click()
        page.get_by_role("link", name="acme").click()
        expect(page.get_by_role("table", name="Dead tasks").get_by_role("link")).to_have_text(["theirs"])
        page.get_by_role("navigation").get_by_role("link", name="Dead").click()
        expect(page.locator(".findings li")).to_have_count(1)
        assert page.url == f"{address}/dead?tenant=acme"
        page.get_by_label("Tenant").fill("")
        page.keyboard.press("Enter")
        expect(page.locator(".findings li")).to_have_count(2)
