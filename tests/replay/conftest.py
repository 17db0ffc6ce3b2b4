"""The parts that stand in for the world when a saved event is replayed."""

from collections.abc import Iterator

import pytest

from duecourse.adapters.embedded.store import MemoryStore
from duecourse.wiring import App
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
def app(store: MemoryStore, outbox: Outbox, web: Web) -> Iterator[App]:
    """The functions' App, all of this process."""
    with wired_with(store=store, senders=dict.fromkeys(("email", "phone"), outbox), http=web) as app:
        yield app
