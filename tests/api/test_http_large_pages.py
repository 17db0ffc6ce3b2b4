"""Every route that lists, with the largest records: no answer is over what Lambda takes, and every record is listed."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from duecourse.api.authorization import ClaimRule
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import MAX_PAYLOAD_BYTES, Shard
from duecourse.settings import Settings
from tests.support.clock import HandClock
from tests.support.functions import invoke, saved
from tests.support.ledger import LEASE_MS, new
from tests.support.requests import DAILY, ask
from tests.support.wired import Wire

pytestmark = pytest.mark.slow

MOST_BYTES = 6 * 1024 * 1024
"""Maximum size of a function's answer, as JSON."""
WORST = {"quotes": '"', "umlauts": "ü", "control": "\x01", "plain": "x", "astral": "😀"}
"""Characters that take more room in an answer than in the ledger."""


def filled(char: str) -> dict[str, str]:
    """Largest payload of one character."""
    size = len(json.dumps(char, ensure_ascii=False).encode()) - 2
    return {"a": char * ((MAX_PAYLOAD_BYTES - 100) // size)}


def get(path: str, **query: str) -> tuple[Any, int]:
    """Answer of a list, and its size as Lambda counts it."""
    event = saved("enqueue_http/list_tasks") | {"routeKey": "$default", "rawPath": path}
    event["requestContext"]["http"] |= {"method": "GET", "path": path}
    answer = invoke("enqueue_http", event | {"queryStringParameters": query, "rawQueryString": ""})
    assert answer["statusCode"] == 200, answer["body"][:300]
    return json.loads(answer["body"]), len(json.dumps(answer).encode())


class Listed(NamedTuple):
    """One route that lists: its field, the name of a record, and the field and parameter that lead to the next page."""

    path: str
    field: str
    name: str
    following: str
    parameter: str


TASKS = Listed("/tasks", "tasks", "id", "next_cursor", "cursor")
SCHEDULES = Listed("/schedules", "schedules", "id", "next_after", "after")
QUEUES = Listed("/queues", "queues", "queue", "next_after", "after")


def pages(of: Listed, **query: str) -> Iterator[list[str]]:
    """Names of each page, one page after the other."""
    while True:
        found, size = get(of.path, **query)
        assert size <= MOST_BYTES
        yield [one[of.name] for one in found[of.field]]
        if not found.get(of.following):
            return
        query[of.parameter] = found[of.following]


def add_tasks(ledger: EmbeddedLedger, payload: dict[str, str]) -> set[str]:
    ids = [f"task-{n:02}" for n in range(30)]
    for id in ids:
        ledger.add([new(id, payload=json.dumps(payload, ensure_ascii=False, separators=(",", ":")), delay_ms=1_000)])
    return set(ids)


@pytest.mark.parametrize("kind", WORST)
@pytest.mark.parametrize("shards", [1, 4])
def test_tasks_of_the_largest_payloads_are_listed(kind: str, shards: int, wire: Wire) -> None:
    ledger = EmbeddedLedger(HandClock(), Sharding({"default": shards}))
    wire(Settings(shards={"default": shards}), ledger=ledger)
    ids = add_tasks(ledger, filled(WORST[kind]))
    seen = [*pages(TASKS, limit="100")]
    assert sorted(id for page in seen for id in page) == sorted(ids)
    assert len(seen) <= 12


def test_tasks_of_several_states_share_the_room_of_a_page(wire: Wire) -> None:
    clock = HandClock()
    ledger = EmbeddedLedger(clock)
    wire(ledger=ledger)
    ids = add_tasks(ledger, filled("ü"))
    clock.advance(2_000)
    ledger.claim(Shard("default"), 10, lease_ms=LEASE_MS)
    assert sorted(id for page in pages(TASKS, limit="100") for id in page) == sorted(ids)


@pytest.mark.parametrize("kind", WORST)
def test_schedules_of_the_largest_payloads_are_listed(kind: str) -> None:
    ids = [f"s-{n:02}" for n in range(30)]
    for id in ids:
        body = {"id": id, "kind": "webhook", "repeat": {"every": "P30D"}, "starts_at": "2090-01-01T00:00:00Z"}
        payload = {"url": "https://example.com", "body": {"a": filled(WORST[kind])["a"][:-100]}}
        assert ask("POST", "/schedules", json.dumps({**body, "payload": payload}, ensure_ascii=False)).status == 201
    seen = [*pages(SCHEDULES, limit="100")]
    assert [id for page in seen for id in page] == ids
    assert all(seen)


def test_small_schedules_fill_a_page() -> None:
    for n in range(45):
        assert ask("POST", "/schedules", DAILY | {"id": f"s-{n:02}"}).status == 201
    assert [len(page) for page in pages(SCHEDULES, limit="20")] == [20, 20, 5]


def add_queues(ledger: EmbeddedLedger, count: int, tenant: Callable[[int], str] = lambda _: "-") -> list[str]:
    names = [f"q-{n:04}-{'x' * 50}" for n in range(count)]
    for n, name in enumerate(names):
        ledger.add([new("a", queue=name, tenant=tenant(n))])
    return names


def test_queues_are_listed_page_by_page(ledger: EmbeddedLedger) -> None:
    names = add_queues(ledger, 120)
    assert [one for page in pages(QUEUES, limit="50") for one in page] == names
    assert [len(page) for page in pages(QUEUES, limit="50")] == [50, 50, 20]
    assert [len(page) for page in pages(QUEUES)] == [120]


def test_queues_of_many_shards_are_fewer_in_a_page(wire: Wire) -> None:
    names = [f"q-{n:02}" for n in range(20)]
    shards = dict.fromkeys(names, 128)
    ledger = EmbeddedLedger(HandClock(), Sharding(shards))
    wire(Settings(shards=shards), ledger=ledger)
    for name in names:
        ledger.configure(name, {"max_running": 1_000})
    seen = [*pages(QUEUES)]
    assert [one for page in seen for one in page] == names
    assert len(seen) > 1


def test_a_page_of_queues_ends_at_no_name_of_another_tenant(wire: Wire) -> None:
    ledger = EmbeddedLedger(HandClock())
    wire(Settings(tenant_from=ClaimRule("org")), ledger=ledger)
    names = add_queues(ledger, 30, lambda n: "acme" if n % 10 == 0 else "globex")
    event = saved("enqueue_http/list_queues")
    event["requestContext"]["authorizer"] = {
        "jwt": {"claims": {"sub": "s", "org": "acme", "scope": "duecourse/caller"}}
    }
    found = []
    after: str | None = ""
    while after is not None:
        query = {"limit": "2", **({"after": after} if after else {})}
        answer = json.loads(invoke("enqueue_http", event | {"queryStringParameters": query})["body"])
        found += [one["queue"] for one in answer["queues"]]
        after = answer.get("next_after")
        assert after is None or after in found
    assert found == names[::10]
