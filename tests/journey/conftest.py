"""What a newcomer writes is for the newcomer's own pytest."""

from collections.abc import Iterator

import pytest
import urllib3

collect_ignore = ["project"]


@pytest.fixture
def http() -> Iterator[urllib3.PoolManager]:
    """A client that does not retry."""
    with urllib3.PoolManager(retries=False) as manager:
        yield manager
