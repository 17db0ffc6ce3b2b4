"""Bounds on a JMESPath expression that hold before it is applied to anything: its length, and how deep it nests."""

from collections.abc import Mapping
from typing import Any

MAX_LENGTH = 1_000
"""Maximum length, in characters."""
MAX_DEPTH = 100
"""Maximum depth of a parsed expression: each level takes a few levels of Python's own stack."""


def problem_of_tree(tree: Mapping[str, Any]) -> str:
    """Reason why a parsed expression is not applied, or ""."""
    waiting = [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MAX_DEPTH:
            return f"nests deeper than {MAX_DEPTH} levels: write it shorter, or as several expressions"
        waiting += [(child, depth + 1) for child in node["children"] if isinstance(child, dict)]
    return ""
