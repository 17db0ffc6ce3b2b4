"""The pytest plugin: the fixture `duecourse`, and the marker that sets where its time begins."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from duecourse.testing.product import Duecourse

MARKER = "duecourse(start, environment): settings of the fixture `duecourse` (duecourse.testing.Duecourse)"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def duecourse(request: pytest.FixtureRequest) -> "Iterator[Duecourse]":
    """Give the whole product in this process, on a clock that the test moves (`duecourse.advance`)."""
    from duecourse.testing.product import Duecourse  # in tests that use it alone

    marker = request.node.get_closest_marker("duecourse")
    with Duecourse(**(marker.kwargs if marker else {})) as product:
        yield product
