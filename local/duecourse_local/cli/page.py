"""`page`: serve the operators' page on this machine, until Ctrl-C."""

import os
import socket
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import HarnessError
from ..harness.addresses import MAX_PORT, listen_for_page
from ..local_page import USUAL_PORT, local_page
from . import console
from .api import ApiClient
from .command import Screen, on_ledger
from .interrupts import staying, until_stopped

if TYPE_CHECKING:
    from duecourse.page.server import Page

NOT_INSTALLED = "the page needs Starlette and uvicorn: pip install 'duecourse[cli,page]'"
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


@on_ledger
def page(
    api: ApiClient,
    screen: Screen,
    port: Annotated[
        int | None,
        typer.Option(help="Port of the page; 0 picks a free one.", min=0, max=MAX_PORT, show_default=USUAL_PORT),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show everything, and change nothing.")] = False,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address, and open no browser.")] = False,
) -> None:
    """Serve a page that shows tasks, queues and schedules, and acts on them, until Ctrl-C.

    The page answers on this machine alone. The address has a new key at each start: treat the address as a
    password. Each request to a deployed API is signed as those of the other commands are.

    Option --json prints the address as one line of JSON, and opens no browser.

    Examples:

        duecourse page

        duecourse page --read-only --store redis://127.0.0.1:6379/0

        duecourse page --port 8000 --no-open

        duecourse page --url https://a1b2c3.execute-api.eu-central-1.amazonaws.com
    """
    _check_installed()
    with until_stopped(), listen_for_page(port, "--port") as sock:
        made = local_page(api, sock, read_only=read_only)
        with _serving(made.application, sock), staying():
            screen.answer({"page": made.address}, lambda found: console.print_ready("page", found["page"]))
            if not screen.as_json:
                console.progress("Ctrl-C stops the page")
            if not (no_open or screen.as_json) and _has_desktop():
                webbrowser.open(made.address_once)


def _check_installed() -> None:
    try:
        for name in ("starlette", "uvicorn"):
            import_module(name)
    except ModuleNotFoundError as error:
        raise HarnessError(NOT_INSTALLED) from error


@contextmanager
def _serving(application: "Page", sock: socket.socket) -> Iterator[None]:
    """Serve the page from a thread; the end waits a second for requests, and for no answer of an API that hangs."""
    import uvicorn

    config = uvicorn.Config(
        application,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,  # it would have the key
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [sock]}, name="page")
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def _has_desktop() -> bool:
    """True if a browser may have a window; else one that is text would take the terminal."""
    windows = sys.platform != "linux" or any(map(os.environ.get, DISPLAYS))
    return windows and sys.stdout.isatty()
