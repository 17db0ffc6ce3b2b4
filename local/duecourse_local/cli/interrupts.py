"""Commands that run until Ctrl-C, and stop in good order."""

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

import typer

from . import console

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def until_stopped(closing_note: str = "") -> Iterator[None]:
    """Be interrupted by the first Ctrl-C, SIGTERM or closed terminal: exit code 0. The harness's errors: code 2.

    `closing_note` is added to the last message: the place where data is kept.
    """
    for number in STOPS:
        signal.signal(number, _interrupt)
    try:
        with console.problems_shown():
            yield
    except KeyboardInterrupt:
        _say(f"stopped{closing_note}")
        raise typer.Exit(0) from None


@contextmanager
def staying() -> Iterator[None]:
    """Run the body, then wait for the interruption; it may come in the body too."""
    try:
        yield
        _wait()
    finally:
        _say("stopping…")


def _wait() -> NoReturn:
    # signal.pause() would sleep through a signal that came just before it, or that another thread was given.
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno())
    while True:
        reader.recv(1)


def _say(text: str) -> None:
    """Print a message; the terminal may be closed by now."""
    with suppress(OSError):
        console.progress(text)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Begin the stop, and ignore further signals during it."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
