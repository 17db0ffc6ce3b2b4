"""The parts that stand in for the world when a saved event is replayed."""

from collections.abc import Iterator

import pytest

from duecourse import wiring
from duecourse.adapters.keyvalue.store import MemoryStore
from duecourse.settings import Settings
from tests.support.kinds import Outbox


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


@pytest.fixture(autouse=True)
def wired(store: MemoryStore, outbox: Outbox) -> Iterator[None]:
    """The functions' parts, all of this process."""
    wiring.configure(settings=Settings(), store=store, results=None, sender=outbox)
    yield
    wiring.crew().close()
    wiring.configure()
