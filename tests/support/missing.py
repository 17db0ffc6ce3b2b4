"""What a test does where something that it needs is not at hand."""

import os
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skip the test on a laptop, fail it in CI."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(what)
