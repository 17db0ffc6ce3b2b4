"""Bounds on a JMESPath expression that hold before it is applied to anything: its length, and how deep it nests."""

from collections.abc import Mapping
from typing import Any

MAX_LENGTH = 1_000
"""In characters."""
MAX_DEPTH = 100
"""How deep a parsed expression may nest: applying it takes a few levels of Python's own stack for each of these."""


def problem_of_text(expression: str) -> str:
    """Why an expression is not even parsed, "" where it may be."""
    if len(expression) > MAX_LENGTH:
        return f"is {len(expression):,} characters long: at most {MAX_LENGTH:,} are taken"
    return ""


def problem_of_tree(tree: Mapping[str, Any]) -> str:
    """Why a parsed expression is not applied, "" where it may be."""
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MAX_DEPTH:
            return f"nests deeper than {MAX_DEPTH} levels: write it shorter, or as several expressions"
        waiting += [(child, depth + 1) for child in node["children"] if isinstance(child, dict)]
    return ""
