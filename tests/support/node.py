"""Whether Node is at hand for tests that run a function written for it."""

import os
import shutil

import pytest


def need_node() -> None:
    """Skip the test where there is no node; fail it where CI is set."""
    if shutil.which("node") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no node on PATH")
