"""What the tests of the whole stack share."""

from collections.abc import Iterator

import pytest
import urllib3


@pytest.fixture
def http() -> Iterator[urllib3.PoolManager]:
    """What asks the HTTP API, several threads at a time."""
    with urllib3.PoolManager(retries=False, timeout=30, maxsize=10) as manager:
        yield manager
