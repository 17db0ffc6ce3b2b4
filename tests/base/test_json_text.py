"""The one form of JSON in which payloads are kept: what the standard library writes, whatever the value."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duecourse.base.json_text import dump_json

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner))


@pytest.mark.slow
@given(VALUES)
def test_it_writes_what_the_standard_library_does(value: Any) -> None:
    assert dump_json(value) == json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def test_a_circle_is_a_wrong_value_as_other_wrong_values_are() -> None:
    circle: list[Any] = []
    circle.append(circle)
    for wrong in (circle, float("nan"), {"at": float("inf")}):
        with pytest.raises(ValueError, match=r"Circular|range"):
            dump_json(wrong)


def test_what_is_no_json_is_a_wrong_type() -> None:
    for wrong in (b"bytes", {1, 2}, {("a", "b"): 1}):
        with pytest.raises(TypeError):
            dump_json(wrong)
