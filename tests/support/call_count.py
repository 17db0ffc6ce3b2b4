"""The cost of work as a number of calls: the same on every machine, however busy."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def within(most: int, work: Callable[[], T]) -> T:
    """What the work answers; AssertionError as soon as it has made more calls, of builtins and generators too."""
    calls = 0

    def seen(_frame: FrameType, event: str, _value: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}
        assert calls <= most, f"over {most:,} calls"

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        return work()
    finally:
        sys.setprofile(before)
