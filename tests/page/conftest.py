"""Fixtures of the page's tests in a real browser: a bad day, where it is served, and the browser."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from duecourse.testing import Duecourse
from tests.support.bad_day import bad_day
from tests.support.browser import chromium, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def day() -> Iterator[Duecourse]:
    with bad_day() as made:
        yield made


@pytest.fixture(scope="module")
def address(day: Duecourse) -> Iterator[str]:
    with served(day) as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as made:
        yield made
