"""What only `make test-matrix` runs: the same as in `make test` on a further server, in another way, or more of it."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

MATRIX = pytest.mark.matrix
LENGTHY = pytest.mark.timeout(600)
"""For what may take more, on a busy machine, than the two minutes of any other test (`timeout` in pyproject.toml)."""


def in_turn(first: Any, *further: Any) -> list[Any]:
    """A parameter's values: the first for `make test`, the others for `make test-matrix`."""
    return [first, *(pytest.param(*_values(one), marks=MATRIX) for one in further)]


def some(rows: Iterable[Any], every: int = 4, kind: Callable[[Any], object] = lambda _: None) -> list[Any]:
    """A long table, named by its numbers: each fourth row and the first of each kind for `make test`."""
    marked, met = [], set()
    for number, row in enumerate(rows):
        first = kind(row) not in met
        met.add(kind(row))
        marked.append(pytest.param(*_values(row), id=str(number), marks=() if first or number % every == 0 else MATRIX))
    return marked


def _values(one: Any) -> tuple[Any, ...]:
    return one if isinstance(one, tuple) else (one,)
