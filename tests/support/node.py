"""Whether Node is at hand for tests that run a function written for it."""

import shutil

from tests.support.missing import missing


def need_node() -> None:
    """Skip the test where there is no node; fail it where CI is set."""
    if shutil.which("node") is None:
        missing("no node on PATH")
