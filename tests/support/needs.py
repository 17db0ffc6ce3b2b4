"""Programs that a test needs: without one it is skipped on a laptop, and fails in CI."""

import os
import shutil
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skip the test on a laptop, fail it in CI."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(what)


def need_node() -> None:
    """Skip the test where there is no node; fail it where CI is set."""
    if shutil.which("node") is None:
        missing("no node on PATH")
