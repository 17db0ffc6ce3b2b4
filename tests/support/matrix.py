"""What only `make test-matrix` runs: the same as in `make test` on a further server, in another way, or more of it."""

from collections.abc import Iterable
from typing import Any

import pytest

MATRIX = pytest.mark.matrix


def in_turn(first: Any, *further: Any) -> list[Any]:
    """A parameter's values: the first for `make test`, the others for `make test-matrix`."""
    return [first, *(pytest.param(*_values(one), marks=MATRIX) for one in further)]


def some(rows: Iterable[Any], every: int = 4) -> list[Any]:
    """A long table, named by its numbers: each fourth row for `make test`, the others for `make test-matrix`."""
    return [
        pytest.param(*_values(row), id=str(number), marks=MATRIX if number % every else ())
        for number, row in enumerate(rows)
    ]


def _values(one: Any) -> tuple[Any, ...]:
    return one if isinstance(one, tuple) else (one,)
