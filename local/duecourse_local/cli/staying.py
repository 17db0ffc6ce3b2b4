"""Commands that stay until Ctrl-C, and end in good order."""

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
def until_stopped(kept: str = "") -> Iterator[None]:
    """Be interrupted by the first Ctrl-C, SIGTERM or closed terminal: exit code 0. The harness's errors: code 2.

    `kept` is what is said at the end of where things are kept.
    """
    for number in STOPS:
        signal.signal(number, _interrupt)
    try:
        with console.problems_shown():
            yield
    except KeyboardInterrupt:
        _say(f"stopped{kept}")
        raise typer.Exit(0) from None


@contextmanager
def staying() -> Iterator[None]:
    """Run the body, which says that all is ready, then wait for the interruption, which may come in the body too."""
    try:
        yield
        _wait()
    finally:
        _say("stopping…")


def _wait() -> NoReturn:
    # signal.pause() would sleep through a signal that came just before it, or that another thread was given.
    ears, mouth = socket.socketpair()
    mouth.setblocking(False)
    signal.set_wakeup_fd(mouth.fileno())
    while True:
        ears.recv(1)


def _say(text: str) -> None:
    """A word on the way; nobody may be there to read it."""
    with suppress(OSError):
        console.progress(text)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Once is enough: the stop that this begins is not to be interrupted in turn."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
