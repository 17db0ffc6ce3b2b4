"""Every connection that this process begins, seen by an audit hook."""

import sys
from typing import Any

_seen: list[Any] = []
_hooked: list[bool] = []


def dialled() -> list[Any]:
    """Addresses dialled from now on; the list of an earlier caller is emptied."""
    if not _hooked:
        sys.addaudithook(lambda event, args: _seen.append(args[1]) if event == "socket.connect" else None)
        _hooked.append(True)
    _seen.clear()
    return _seen
