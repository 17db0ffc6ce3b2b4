"""What one tenant is answered does not depend on what another one has: every route, with and without that."""

import json
from typing import Any

import pytest

from duecourse.api.authorization import Role
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import Ending, NewTask, Settlement, Shard
from duecourse.settings import parse
from tests.support.callers import PAYLOAD, Caller, Scene, scene, token
from tests.support.clock import HandClock
from tests.support.kinds import Ok, Outbox
from tests.support.requests import DAILY, WEBHOOK, Answer, ask
from tests.support.routes_and_roles import ASKED, CASES, RouteRequest
from tests.support.stores import Beginning
from tests.support.wired import wired_with

pytestmark = pytest.mark.slow

OWN, OTHER = Caller("acme", (Role.CALLER, Role.WORKER)), Caller("globex", (Role.CALLER, Role.WORKER))
MAX_QUEUES = 7
MANY = 1_200
"""Tasks of the other tenant in each state: more than one step of a list looks at."""


BEGINNINGS = {crowded: Beginning[Scene]() for crowded in (False, True)}


class Seen:
    """A deployment, as one tenant sees it."""

    def __init__(self, ledger: EmbeddedLedger, *, crowded: bool) -> None:
        self.ledger = ledger
        self.of = BEGINNINGS[crowded].given(ledger, lambda: self.begin(crowded=crowded))

    def begin(self, *, crowded: bool) -> Scene:
        """Give both tenants their things."""
        if crowded:
            self.crowd()
        return scene(self.ledger, self.call_as, OWN, "acme")

    def call_as(
        self, who: Caller, method: str, path: str, body: object = None, query: str = "", **headers: str
    ) -> Answer:
        return ask(method, path, body, query=query, authorizer=token(who), **headers)

    def crowd(self) -> None:
        """Give the other tenant things in the queues that the first one uses, or thinks of."""
        queue, tenant = "q-acme", OTHER.tenant
        ids = [f"order-{number:04}" for number in range(MANY)]
        for state in ("waiting", "cancelled"):
            for start in range(0, MANY, 400):
                some = [f"{state}-{id}" for id in ids[start : start + 400]]
                self.ledger.add([NewTask(id, "webhook", PAYLOAD, queue, tenant, delay_ms=3_000_000) for id in some])
                if state == "cancelled":
                    self.ledger.cancel(queue, some, tenant=tenant)
        shard, dead = Shard(queue), ids[:300]
        self.ledger.add([NewTask(f"dead-{id}", "webhook", PAYLOAD, queue, tenant) for id in dead])
        claimed = self.ledger.claim(shard, len(dead), lease_ms=1_000).tasks
        assert len(claimed) == len(dead)
        ends = [Settlement.of(task, Ending.DROP, detail="their error") for task in claimed]
        self.ledger.settle(shard, ends)
        for name in ("daily-acme", "daily-acm", "thought-of"):
            assert self.call_as(OTHER, "POST", "/schedules", DAILY | {"id": name, "queue": queue}).status == 201
        assert self.call_as(OTHER, "POST", "/queries", ASKED).status == 200
        for name in ("thought-of", "q-acm", "q-acmee"):
            assert self.call_as(OTHER, "POST", "/tasks", WEBHOOK | {"queue": name}).status == 201

    def asked(self, asked: RouteRequest, route: str) -> tuple[Any, ...]:
        answer = self.call_as(OWN, route.partition(" ")[0], asked.path, asked.body, asked.query)
        headers = {name: value for name, value in answer.headers.items() if name != "Content-Length"}
        return answer.status, plain(answer.text), headers


def plain(text: str) -> str:
    """An answer without what a ledger draws: tokens, generations."""
    try:
        return json.dumps(_plain(json.loads(text)))
    except ValueError:
        return text


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: "…" if name in {"token", "generation"} else _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _near(of: Scene) -> list[tuple[str, RouteRequest]]:
    """Requests about names that are nearly those of another, in lists and pages of each state."""
    lists = [
        ("GET /tasks", RouteRequest("/tasks", None, f"queue={of.queue}&state={state}&limit=3")) for state in STATES
    ]
    return [
        *lists,
        ("GET /queues/{queue}", RouteRequest("/queues/q-acm")),
        ("GET /queues/{queue}", RouteRequest("/queues/thought-off")),
        ("GET /schedules/{id}", RouteRequest("/schedules/thought-off", None, f"queue={of.queue}")),
        ("GET /schedules/{id}", RouteRequest("/schedules/daily-acn", None, f"queue={of.queue}")),
        ("GET /queues/{queue}/dead", RouteRequest(f"/queues/{of.queue}/dead", None, "limit=1")),
        ("POST /queues/{queue}/purge", RouteRequest(f"/queues/{of.queue}/purge", {"state": "done", "limit": 1})),
        (
            "POST /queues/{queue}/cancel",
            RouteRequest(f"/queues/{of.queue}/cancel", {"state": "scheduled", "dry_run": True}),
        ),
    ]


STATES = ("scheduled", "leased", "done", "cancelled", "dead")


@pytest.fixture
def both(clock: HandClock) -> list[Any]:
    """The same things of one tenant, alone and beside those of another."""
    at = clock.at
    found: list[Any] = []
    for crowded in (False, True):
        clock.at = at
        ledger = EmbeddedLedger(clock, max_queues=MAX_QUEUES)
        parts = {"senders": dict.fromkeys(("email", "phone"), Outbox()), "http": Ok()}
        settings = parse({"DUECOURSE_TENANT_FROM": "claim:org_id", "DUECOURSE_TENANT_MAX_QUEUES": str(MAX_QUEUES)})
        found.append((settings, ledger, parts, crowded))
    return found


def seen_in(setting: Any, requests: Any) -> list[Any]:
    settings, ledger, parts, crowded = setting
    with wired_with(settings, ledger=ledger, **parts):
        seen = Seen(ledger, crowded=crowded)
        return [seen.asked(one, route) for route, one in requests(seen.of)]


@pytest.mark.parametrize("route", [route for route, case in CASES.items() if case.role is not Role.OPERATOR])
def test_a_route_answers_the_same_whatever_another_tenant_has(route: str, both: Any) -> None:
    alone, crowded = (seen_in(one, lambda of: [(route, CASES[route].ask(of))]) for one in both)
    assert alone == crowded


def test_lists_counts_and_names_that_are_nearly_right_are_the_same(both: Any) -> None:
    alone, crowded = (seen_in(one, _near) for one in both)
    assert alone == crowded


def test_a_quota_of_queues_tells_nothing_of_the_queues_and_hosts_of_others(both: Any) -> None:
    def adds(_of: Scene) -> list[tuple[str, RouteRequest]]:
        names = [*(f"own-{number}" for number in range(MAX_QUEUES)), "thought-of", "never-thought-of"]
        tasks = [RouteRequest("/tasks", WEBHOOK | {"id": "a", "queue": name}) for name in names]
        return [*(("POST /tasks", one) for one in tasks), ("POST /queries", RouteRequest("/queries", ASKED))]

    alone, crowded = (seen_in(one, adds) for one in both)
    assert alone == crowded
    assert [status for status, *_ in alone][-3:] == [429, 429, 429]
