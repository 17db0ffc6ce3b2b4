"""The benchmark: it measures what the product has by now."""

from importlib import import_module
from pathlib import Path

import pytest

import tests.bench

MODULES = [path.stem for path in Path(tests.bench.__file__).parent.glob("[a-z]*.py")]


@pytest.mark.parametrize("module", MODULES)
def test_each_section_can_begin(module: str) -> None:
    assert import_module(f"tests.bench.{module}").__doc__
