"""The deployed shape: the HTTP function with a rule for who may do what, on a ledger in memory."""

from collections.abc import Iterator

import pytest

from duecourse.adapters.embedded.store import MemoryStore
from duecourse.ports.http import HttpAnswer, HttpRequest
from duecourse.settings import parse
from duecourse.wiring import App
from tests.support.callers import Door, Who, token
from tests.support.kinds import Outbox, answer
from tests.support.requests import Answer, ask
from tests.support.wired import wired_with


class Ok:
    """An HttpCaller that always gets the same answer."""

    def call(self, _request: HttpRequest) -> HttpAnswer:
        return answer(200, {"status": "ok"})


@pytest.fixture
def app(store: MemoryStore) -> Iterator[App]:
    """The App of the function, whose tenants come from the claim `org_id`."""
    settings = parse({"DUECOURSE_TENANT_FROM": "claim:org_id"})
    with wired_with(settings, store=store, senders=dict.fromkeys(("email", "phone"), Outbox()), http=Ok()) as app:
        yield app


@pytest.fixture
def door(app: App) -> Door:
    """The function, called as API Gateway calls it for a caller with a token."""
    assert app.access

    def call(who: Who, method: str, path: str, body: object = None, query: str = "", **headers: str) -> Answer:
        return ask(method, path, body, query=query, authorizer=token(who), **headers)

    return call
