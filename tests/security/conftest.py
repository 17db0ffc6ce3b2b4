"""Fixtures of the attacks: the local stack whose functions have a module's settings, and its HTTP API."""

from collections.abc import Iterator

import pytest
import urllib3

from duecourse_local.stack.options import Options
from duecourse_local.stack.stack import Stack
from tests.support.api import Api


@pytest.fixture(scope="module")
def stack(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A stack without schedules, with the variables in the module's `ENVIRONMENT`."""
    with Stack(Options(tick=0, environment=request.module.ENVIRONMENT)) as running:
        yield running


@pytest.fixture(scope="module")
def api(stack: Stack) -> Iterator[Api]:
    with urllib3.PoolManager(retries=False, timeout=30) as http:
        yield Api(http, stack.api)
