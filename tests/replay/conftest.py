"""The parts that stand in for the world when a saved event is replayed."""

from collections.abc import Iterator

import pytest

from duecourse import wiring
from duecourse.adapters.keyvalue.store import MemoryStore
from duecourse.ports.sender import Message
from duecourse.settings import Settings
from tests.support.clock import HandClock


class Outbox:
    """A sender that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def send(self, message: Message) -> str:
        self.sent.append(message)
        return f"m-{len(self.sent)}"


@pytest.fixture
def store(clock: HandClock) -> MemoryStore:
    return MemoryStore(clock)


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
