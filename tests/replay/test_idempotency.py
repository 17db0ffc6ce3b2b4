"""Idempotency-Key: a request that is sent twice is done once, and answered the same."""

from typing import Any

import pytest

from duecourse import errors
from duecourse.adapters.embedded.store import MemoryStore
from duecourse.domain.outcomes import Ending
from duecourse.domain.task import Shard, Status
from duecourse.engine.idempotency import SKEW_MS
from duecourse.ports.idempotency import KEPT_MS, KeyedRequest, SavedResponse
from duecourse.routes.idempotency import GRACE_MS
from duecourse.settings import Settings
from tests.support.clock import HandClock
from tests.support.functions import Context
from tests.support.ledger import bring, claim, settle, standing
from tests.support.requests import MEETING, WEBHOOK, Answer, ask, wrong
from tests.support.wired import Wire

KEY = '"8e03978e-40d5-43e8-bc93-6894a57f9324"'
REMAINING_MS = 15_000


def keyed(method: str, path: str, body: Any = None, key: str = KEY, query: str = "") -> Answer:
    return ask(method, path, body, Context(REMAINING_MS), query, idempotency_key=key)


def count(store: MemoryStore, queue: str = "default") -> int:
    stats = store.stats(Shard(queue))
    return stats.scheduled + stats.leased + stats.done + stats.dead


@pytest.mark.parametrize(
    ("path", "body", "queue", "tasks"),
    [
        ("/tasks", WEBHOOK, "default", 1),
        ("/tasks/batch", {"tasks": [WEBHOOK, WEBHOOK]}, "default", 2),
        ("/reminders", {name: MEETING[name] for name in MEETING if name != "id"}, "reminders", 1),
    ],
)
def test_what_is_sent_twice_is_added_once_and_answered_the_same(
    path: str, body: Any, queue: str, tasks: int, store: MemoryStore, clock: HandClock
) -> None:
    first = keyed("POST", path, body)
    clock.advance(KEPT_MS - 1)
    assert keyed("POST", path, body) == first
    assert count(store, queue) == tasks
    clock.advance(1)
    assert keyed("POST", path, body) != first, "a day later it is another request"


@pytest.mark.parametrize(("method", "body", "status"), [("PATCH", {"delay": 60}, 200), ("DELETE", None, 204)])
def test_a_change_is_made_once(method: str, body: Any, status: int, store: MemoryStore, clock: HandClock) -> None:
    bring(store, "scheduled")
    first = keyed(method, "/tasks/a", body)
    moved = store.get("default", "a")
    clock.advance(10_000)
    assert (first.status, keyed(method, "/tasks/a", body)) == (status, first)
    assert store.get("default", "a") == moved


def test_a_refusal_stays_too(store: MemoryStore) -> None:
    first = keyed("PATCH", "/tasks/a", {"delay": 60})
    bring(store, "scheduled")
    assert keyed("PATCH", "/tasks/a", {"delay": 60}) == first
    assert (first.status, first.headers["Content-Type"]) == (404, "application/problem+json")


@pytest.mark.parametrize(
    ("method", "path", "body", "query"),
    [
        ("POST", "/tasks", WEBHOOK | {"delay": 60}, ""),
        ("POST", "/tasks/batch", WEBHOOK, ""),
        ("PATCH", "/tasks/a", {"delay": 60}, ""),
        ("DELETE", "/tasks/a", None, "force"),
    ],
)
def test_a_key_stands_for_one_request(method: str, path: str, body: Any, query: str, store: MemoryStore) -> None:
    keyed("DELETE", "/tasks/a", query="force=false")
    if path == "/tasks/batch":
        body = {"tasks": [body]}
    answer = keyed(method, path, body, query=query)
    assert (answer.status, answer.body["type"]) == (422, "urn:duecourse:problem:key-reused")
    assert "send a new key" in answer.body["detail"]
    assert store.shards() == []


def test_a_key_stands_for_one_method(store: MemoryStore) -> None:
    assert keyed("DELETE", "/tasks/a", {"delay": 60}).status == 404
    bring(store, "scheduled")
    assert keyed("PATCH", "/tasks/a", {"delay": 60}).body["type"] == "urn:duecourse:problem:key-reused"


@pytest.mark.parametrize(
    "key",
    [
        "",
        '"',
        '""',
        "8e03978e",
        "'8e03978e'",
        '"a',
        'a"',
        '"a"b"',
        '"\\x"',
        '"é"',
        '"a";b=1',
        '"' + "x" * 256 + '"',
        "?1",
    ],
)
def test_a_key_that_is_none_is_refused_with_what_one_is(key: str, store: MemoryStore) -> None:
    answer = keyed("POST", "/tasks", WEBHOOK, key)
    assert (answer.status, answer.body["type"]) == (400, "urn:duecourse:problem:malformed-key")
    assert 'in double quotes: "8e03978e-' in answer.body["detail"]
    assert store.shards() == []


@pytest.mark.parametrize("key", ['"a"', ' "a" ', '"a b;c=\\"d\\\\"', '"' + "x" * 255 + '"'])
def test_a_key_may_be_any_string_of_a_header(key: str, store: MemoryStore) -> None:
    assert keyed("POST", "/tasks", WEBHOOK, key).status == 201
    assert keyed("POST", "/tasks", WEBHOOK, key).status == 201
    assert count(store) == 1


def test_where_nothing_is_changed_a_key_says_nothing(store: MemoryStore) -> None:
    bring(store, "scheduled")
    assert keyed("GET", "/tasks/a", key="nonsense").status == 200
    store.cancel("default", ["a"])
    assert keyed("GET", "/tasks/a", key=KEY).body["task"]["state"] == "cancelled"


def test_the_first_one_still_under_way_is_told_with_a_time_to_come_again(store: MemoryStore, wire: Wire) -> None:
    """The other is asked while the first is in its engine's call: a store that asks is where that is."""
    others: list[Answer] = []

    class Slow:
        def __getattr__(self, verb: str) -> Any:
            return getattr(store, verb)

        def add(self, *given: Any, **named: Any) -> Any:
            if not others:
                others.append(keyed("POST", "/tasks", WEBHOOK))
                others.append(keyed("POST", "/tasks", WEBHOOK | {"delay": 1}))
            return store.add(*given, **named)

    wire(store=Slow())
    assert keyed("POST", "/tasks", WEBHOOK).status == 201
    busy, reused = others
    assert (busy.status, busy.body["reason"]) == (409, "under_way")
    assert int(busy.headers["Retry-After"]) == (REMAINING_MS + GRACE_MS) // 1000
    assert reused.status == 422
    assert count(store) == 1


class Dying:
    """A store on whose add the function dies: its first calls have happened, and nobody hears of it."""

    def __init__(self, store: MemoryStore, error: BaseException) -> None:
        self._store = store
        self._error = error

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    def add(self, *given: Any, **named: Any) -> Any:
        self._store.add(*given, **named)
        raise self._error

    def idempotency(self) -> Any:
        return Unending(self._store.idempotency())


class Unending:
    """The ends of requests are lost."""

    def __init__(self, idempotency: Any) -> None:
        self._idempotency = idempotency

    def begin(self, sent: KeyedRequest, owner: bytes, lock_ms: int) -> SavedResponse:
        begun: SavedResponse = self._idempotency.begin(sent, owner, lock_ms)
        return begun

    def __getattr__(self, verb: str) -> Any:
        def lose(*_: Any) -> None:
            raise errors.StoreUnavailable

        return lose


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize(("path", "body"), [("/tasks", WEBHOOK), ("/tasks/batch", {"tasks": [WEBHOOK, WEBHOOK]})])
def test_a_function_that_died_blocks_its_key_for_its_time_and_what_it_added_is_not_added_twice(
    path: str, body: Any, done: bool, store: MemoryStore, clock: HandClock, wire: Wire
) -> None:
    wire(store=Dying(store, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        keyed("POST", path, body)
    wire(store=store)
    before = count(store)
    clock.advance(REMAINING_MS + GRACE_MS - 1)
    assert keyed("POST", path, body).status == 409
    clock.advance(1)
    if done:
        clock.advance(3_600_000)
        for task in claim(store):
            settle(store, task, Ending.DONE)
    answer = keyed("POST", path, body)
    items = answer.body.get("tasks") or [answer.body]
    assert (answer.status, {item["created"] for item in items}) == (200, {False})
    assert count(store) == before == len(items)
    if done:
        ids = [item.get("id") or item["task"]["id"] for item in items]
        assert {standing(store, task_id).status for task_id in ids} == {Status.DONE}


class Away:
    """A store that takes no task."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    def add(self, *_: Any, **__: Any) -> Any:
        raise errors.StoreUnavailable


def test_a_fault_is_not_kept(store: MemoryStore, wire: Wire) -> None:
    wire(store=Away(store))
    assert keyed("POST", "/tasks", WEBHOOK).status == 503
    assert keyed("POST", "/tasks", WEBHOOK).status == 503
    wire(store=store)
    assert keyed("POST", "/tasks", WEBHOOK | {"delay": 1}).status == 422, "but its key stays its own"
    assert keyed("POST", "/tasks", WEBHOOK).status == 201


@pytest.mark.parametrize("path", ["/tasks", "/tasks/batch"])
@pytest.mark.parametrize(
    ("state", "on_duplicate", "due_in_ms"),
    [("scheduled", "replace", 5_000), ("done", "keep", 5_000), ("cancelled", "keep", 5_000), ("scheduled", "keep", 0)],
)
def test_what_stood_before_a_request_that_failed_is_not_taken_for_what_that_added(
    path: str, state: str, on_duplicate: str, due_in_ms: int, store: MemoryStore, clock: HandClock, wire: Wire
) -> None:
    bring(store, state)
    old = standing(store)
    clock.advance(SKEW_MS + 1)
    body = WEBHOOK | {"id": "a", "on_duplicate": on_duplicate, "delay": 5}
    asked = body if path == "/tasks" else {"tasks": [body]}
    wire(store=Away(store))
    assert keyed("POST", path, asked).status == 503
    wire(store=store)
    assert keyed("POST", path, asked).status in {200, 201}
    assert standing(store).due_at == (clock.now() + due_in_ms if due_in_ms else old.due_at)
    assert standing(store).status is Status.SCHEDULED


def test_what_was_reject_is_still_rejected_after_a_fault(store: MemoryStore, clock: HandClock, wire: Wire) -> None:
    bring(store, "scheduled")
    clock.advance(SKEW_MS + 1)
    body = WEBHOOK | {"id": "a", "on_duplicate": "reject"}
    wire(store=Away(store))
    assert keyed("POST", "/tasks", body).status == 503
    wire(store=store)
    assert keyed("POST", "/tasks", body).status == 409


def test_an_answer_that_cannot_be_kept_is_given_all_the_same(
    store: MemoryStore, clock: HandClock, caplog: pytest.LogCaptureFixture, wire: Wire
) -> None:
    class Forgetful:
        def __getattr__(self, verb: str) -> Any:
            return getattr(store, verb)

        def idempotency(self) -> Any:
            return Unending(store.idempotency())

    wire(store=Forgetful())
    first = keyed("POST", "/tasks", WEBHOOK)
    assert first.status == 201
    assert "could not be stored" in caplog.text
    clock.advance(REMAINING_MS + GRACE_MS)
    again = keyed("POST", "/tasks", WEBHOOK)
    assert (again.status, again.body["task"]) == (200, first.body["task"])


@pytest.mark.parametrize("bad", [WEBHOOK | {"delay": "soon"}, WEBHOOK | {"kind": "strange"}, "{"])
def test_what_was_refused_for_its_fields_leaves_its_key_free(bad: Any) -> None:
    first = keyed("POST", "/tasks", bad)
    assert (first.status in {400, 422}, keyed("POST", "/tasks", bad)) == (True, first)
    assert keyed("POST", "/tasks", WEBHOOK).status == 201


def test_ids_are_random_without_a_key_and_an_id_that_is_given_is_taken(store: MemoryStore) -> None:
    assert ask("POST", "/tasks", WEBHOOK).body["task"]["id"] != ask("POST", "/tasks", WEBHOOK).body["task"]["id"]
    assert keyed("POST", "/tasks", WEBHOOK | {"id": "a"}).body["task"]["id"] == "a"
    assert store.get("default", "a")


def test_a_tenant_that_is_none_is_refused_and_keeps_nothing(store: MemoryStore, wire: Wire) -> None:
    wire(settings=Settings(tenant_header="X-Tenant"), store=store)
    answer = ask("POST", "/tasks", WEBHOOK, Context(), idempotency_key=KEY, x_tenant="a/b")
    assert wrong(answer).keys() == {"X-Tenant"}
