"""A real Chromium, driven by Playwright, and the operators' page that it looks at."""

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
import urllib3
import uvicorn

from duecourse import page as operators_page
from tests.support.wait import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

    from duecourse.testing import Duecourse

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), "")
PATIENCE_MS = 30_000
"""Time within which the page shows something, on a busy machine too."""
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    "--disable-background-networking",
]

needs_browser = pytest.mark.skipif(
    not CHROMIUM,
    reason="NO BROWSER: the operators' page is NOT tested in one. make setup-browser, or apt-get install chromium",
)


@contextmanager
def chromium() -> "Iterator[Browser]":
    """A browser without a window."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def served(day: "Duecourse", *, mount: str = "", **options: Any) -> Iterator[str]:
    """Address of the page of a ledger, behind a server of its own; `mount` is a path that a program gives it."""
    from starlette.applications import Starlette
    from starlette.routing import Mount

    application = operators_page.app(day.client, **options)
    whole = Starlette(routes=[Mount(mount, application)]) if mount else application
    with socket.create_server(("127.0.0.1", 0)) as sock:
        # Else each answer waits 40 ms for the acknowledgement of its head: asyncio knows the socket for no TCP one.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = uvicorn.Server(uvicorn.Config(whole, http="h11", ws="none", lifespan="off", log_config=None))
        thread = Thread(target=server.run, kwargs={"sockets": [sock]}, name="page")
        thread.start()
        try:
            until(lambda: server.started)
            yield f"http://127.0.0.1:{sock.getsockname()[1]}{mount}"
        finally:
            server.should_exit = True
            thread.join()


def read(address: str, path: str) -> Any:
    """Answer of the HTTP API behind a page, beside the browser."""
    return urllib3.request("GET", f"{address}/api{path}").json()


class Traffic:
    """Requests of a tab to the API: their paths, and those that have no answer yet."""

    def __init__(self, page: "Page") -> None:
        self.paths: list[str] = []
        self._page = page
        self._open: set[Request] = set()
        page.on("request", self._begin)
        page.on("requestfinished", self._end)
        page.on("requestfailed", self._end)

    def _begin(self, request: "Request") -> None:
        if "/api/" in request.url:
            self.paths.append(request.url.partition("/api")[2])
            self._open.add(request)

    def _end(self, request: "Request") -> None:
        self._open.discard(request)

    def settle(self) -> None:
        """Wait until each request is answered, and none follows from its answer."""
        quiet = 0

        def look() -> bool:
            nonlocal quiet
            self._page.evaluate("0")  # the events of the tab are delivered meanwhile
            quiet = 0 if self._open else quiet + 1
            return quiet == 5

        until(look)


@contextmanager
def opened(
    browser: "Browser",
    address: str,
    *,
    theme: str = "light",
    width: int = 1280,
    zone: str = "Europe/Vienna",
    ignores: tuple[str, ...] = (),
    **options: Any,
) -> "Iterator[Page]":
    """A tab of its own. At its end, nothing in it may have failed but for `ignores`, and no other host was asked."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=theme,
        timezone_id=zone,
        base_url=f"{address}/",
        **options,
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    faults: list[str] = []
    host = "/".join(address.split("/")[:3])
    page.on("pageerror", lambda error: faults.append(f"an exception: {error}"))
    expected = ("status of 4", *ignores)
    page.on(
        "console",
        lambda one: (
            faults.append(one.text) if one.type == "error" and not any(text in one.text for text in expected) else None
        ),
    )
    page.on(
        "request",
        lambda one: None if one.url.startswith((host, "data:", "blob:")) else faults.append(f"asked {one.url}"),
    )
    try:
        yield page
    finally:
        context.close()
    assert not faults, faults
