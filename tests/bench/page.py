"""The operators' page on a large ledger: the time to each first view, and the longest frame while a list scrolls."""

import json
import statistics
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import redis

from duecourse.app import PROCESS, App
from duecourse.client.client import Client
from duecourse.settings import Settings
from tests.bench.figures import Figure
from tests.bench.server import BenchServer
from tests.bench.stage import Measured
from tests.support.browser import chromium, opened, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from duecourse.testing import Duecourse

TASKS, QUEUES, SCHEDULES = 100_000, 200, 2_000
TOGETHER = 1_000
TARGETS = {"report": "lambda:report"}
ROUNDS = 3
VIEW_AIM, FRAME_AIM = "≤ 1 s", "≤ 100 ms"
VIEWS = {
    "overview": ("", ".wrong li, .wrong .fine"),
    "tasks": ("tasks?queue=q-000&state=scheduled", ".rows .space .row"),
    "schedules": ("schedules", "section.panel tbody tr"),
    "dead tasks": ("dead", ".fine, .findings li"),
    "limits": ("limits", "tbody tr"),
}
"""Path of each view, and what it shows first of the ledger."""
CATEGORIES = ["disabled-by-default-devtools.timeline", "devtools.timeline", "__metadata"]
SCROLL = """async seconds => {
  const rows = document.querySelector(".rows"), until = performance.now() + seconds * 1000;
  let before = performance.now(), longest = 0, frames = 0;
  while (performance.now() < until) {
    const now = await new Promise(requestAnimationFrame);
    longest = Math.max(longest, now - before);
    before = now;
    frames++;
    // Ten rows a frame, and from the end back to the start.
    const end = rows.scrollTop + rows.clientHeight > rows.scrollHeight - 40;
    rows.scrollTop = end && rows.ariaRowCount !== "-1" ? 0 : rows.scrollTop + 300;
  }
  return {longest, frames, rows: rows.scrollHeight / 30 - 1};
}"""


class Filled(NamedTuple):
    """A ledger with all that is shown."""

    client: Client


def figures(server: BenchServer, _pending: int) -> Measured:
    """A ledger in Redis, and the page that a Chromium shows of it."""
    with redis.Redis.from_url(server.url) as plain, PROCESS.using(App(Settings(store=server.url, targets=TARGETS))):
        plain.flushall()
        client = Client.from_env()
        _fill(client)
        with served(cast("Duecourse", Filled(client))) as address, chromium() as browser:
            yield [_first_view(browser, address, name) for name in VIEWS]
            yield list(_frames(browser, address))
        plain.flushall()


def _fill(client: Client) -> None:
    for number in range(QUEUES):
        client.set_queue(f"q-{number:03}", create=True)
    for first in range(0, TASKS, TOGETHER):
        client.add_many(
            {"kind": "report", "payload": {"n": n}, "id": f"task-{n}", "delay": f"PT{7_200 + n}S", "queue": "q-000"}
            for n in range(first, first + TOGETHER)
        )
    for number in range(SCHEDULES):
        client.schedules.add(
            id=f"schedule-{number}",
            kind="report",
            payload={},
            repeat={"cron": f"{number % 60} {number % 24} * * *"},
            queue=f"q-{number % QUEUES:03}",
            time_zone="Europe/Vienna",
        )


def _first_view(browser: "Browser", address: str, name: str) -> Figure:
    path, shown = VIEWS[name]
    took = []
    for _ in range(ROUNDS):
        with opened(browser, address) as page:
            began = time.perf_counter()
            page.goto(path, wait_until="commit")
            page.locator(shown).first.wait_for()
            took.append(time.perf_counter() - began)
    text = f"{statistics.median(took) * 1e3:.0f} ms, at most {max(took) * 1e3:.0f} ms"
    return Figure(f"First view of {name}, with nothing in the browser's cache", "", VIEW_AIM, text)


def _frames(browser: "Browser", address: str) -> Iterator[Figure]:
    with opened(browser, address) as page:
        page.goto(VIEWS["tasks"][0])
        page.locator(VIEWS["tasks"][1]).first.wait_for()
        for name in ("while rows come", "with all rows there"):
            seen, longest = _traced(browser, page)
            measured = f"longest frame {seen['longest']:.0f} ms, longest work of the page {longest}"
            yield Figure(
                f"Scrolling {name}", "", FRAME_AIM, measured, f"{seen['frames']} frames, {seen['rows']:,.0f} rows"
            )
            _load_all(page)


def _traced(browser: "Browser", page: "Page") -> tuple[dict[str, float], str]:
    browser.start_tracing(page=page, categories=CATEGORIES)
    seen = page.evaluate(SCROLL, 10)
    return seen, _longest_task(json.loads(browser.stop_tracing())["traceEvents"])


def _longest_task(events: list[dict[str, Any]]) -> str:
    """Longest work of the main thread of the tab, between two of which a frame can be drawn."""
    mains = {(one["pid"], one["tid"]) for one in events if (one.get("args") or {}).get("name") == "CrRendererMain"}
    works = [one for one in events if one["name"] == "RunTask" and (one["pid"], one["tid"]) in mains and "dur" in one]
    longest, busiest = (max(one.get(name, 0) for one in works) / 1_000 for name in ("dur", "tdur"))
    return f"{longest:.0f} ms ({busiest:.0f} ms of the processor)"


def _load_all(page: "Page") -> None:
    rows = page.locator(".rows")
    while rows.get_attribute("aria-rowcount") == "-1":
        rows.evaluate("rows => { rows.scrollTop = rows.scrollHeight; }")
        page.wait_for_timeout(100)
