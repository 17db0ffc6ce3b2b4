"""What only `make test-all` runs: the same as in `make test` on a further server or in another way, or more of it."""

from typing import Any

import pytest

MATRIX = pytest.mark.matrix


def in_turn(first: Any, *further: Any) -> list[Any]:
    """A parameter's values: the first for `make test`, all of them for `make test-all`."""
    return [first, *(pytest.param(*_values(one), marks=MATRIX) for one in further)]


def _values(one: Any) -> tuple[Any, ...]:
    return one if isinstance(one, tuple) else (one,)
