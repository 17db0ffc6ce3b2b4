"""The parts that stand in for the world when a saved event is replayed."""

from collections.abc import Iterator

import pytest

from duecourse.adapters.embedded.store import MemoryStore
from duecourse.settings import Settings
from tests.support.kinds import Outbox, Web, answer
from tests.support.wired import wired_with


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


@pytest.fixture
def web() -> Web:
    """Where webhooks go: it takes one."""
    return Web(answer(204))


@pytest.fixture(autouse=True)
def wired(store: MemoryStore, outbox: Outbox, web: Web) -> Iterator[None]:
    """The functions' parts, all of this process."""
    with wired_with(
        settings=Settings(), store=store, results=None, senders=dict.fromkeys(("email", "phone"), outbox), http=web
    ):
        yield
