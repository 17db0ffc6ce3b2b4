"""Choice of the function for a request: an HTTP API's rules, the most specific route first."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..template.model import Function, Route

SEGMENT = re.compile(r"^\{([^}+]+)(\+?)\}$")
LITERAL, VARIABLE, GREEDY = range(3)


class Match(NamedTuple):
    """The function that serves a request, its route key and the path's variables."""

    function: Function
    key: str
    parameters: Mapping[str, str]


class _Compiled(NamedTuple):
    order: tuple[object, ...]
    route: Route
    function: Function
    pattern: re.Pattern[str]


class Routes:
    """The routes of all functions."""

    def __init__(self, functions: Iterable[Function]) -> None:
        compiled = [_compile(route, function) for function in functions for route in function.routes]
        self._routes = sorted(compiled, key=lambda c: c.order)

    def match(self, method: str, path: str) -> Match | None:
        """The most specific route for a request, or None."""
        for compiled in self._routes:
            found = compiled.pattern.match(path)
            if found and compiled.route.method in (method, "ANY"):
                return Match(compiled.function, compiled.route.key, found.groupdict())
        return None


def _compile(route: Route, function: Function) -> _Compiled:
    if route.path == "$default":
        return _Compiled((True,), route, function, re.compile(""))
    segments = [_segment(text) for text in route.path.strip("/").split("/")]
    order = (False, tuple(rank for rank, _ in segments), route.method == "ANY")
    pattern = re.compile("^/" + "/".join(pattern for _, pattern in segments) + "/?$", re.DOTALL)
    return _Compiled(order, route, function, pattern)


def _segment(text: str) -> tuple[int, str]:
    match = SEGMENT.match(text)
    if not match:
        return LITERAL, re.escape(text)
    name, greedy = match.groups()
    return (GREEDY, f"(?P<{name}>.+)") if greedy else (VARIABLE, f"(?P<{name}>[^/]+)")
