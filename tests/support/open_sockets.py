"""Place where each socket that a test left open was made: Python warns at its collection, maybe in another test."""

import re
import socket
import sys
from collections.abc import Iterator
from itertools import islice
from types import FrameType

FRAMES = 12
_makers: dict[int, list[str]] = {}


def watch() -> None:
    """Note from now on where each socket is made, and say so beside the warning of one that nobody closed."""
    make, report = socket.socket.__init__, sys.unraisablehook

    def noted(self: socket.socket, *args: object, **options: object) -> None:
        make(self, *args, **options)  # type: ignore[arg-type]
        _makers[self.fileno()] = list(islice(_callers(sys._getframe(1)), FRAMES))

    def told(unraisable: "sys.UnraisableHookArgs") -> None:
        found = re.search(r"unclosed <socket.socket fd=(\d+)", str(unraisable.exc_value))
        if found and unraisable.exc_value and int(found[1]) in _makers:
            unraisable.exc_value.args = ("\n".join([str(unraisable.exc_value), "made by", *_makers[int(found[1])]]),)
        report(unraisable)

    socket.socket.__init__ = noted  # type: ignore[method-assign,assignment]
    sys.unraisablehook = told


def _callers(frame: FrameType | None) -> Iterator[str]:
    while frame:
        yield f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
