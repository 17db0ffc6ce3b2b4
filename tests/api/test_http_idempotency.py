"""Idempotency-Key: a request that is sent twice is done once, and answered the same."""

from typing import Any

import pytest

from duecourse import errors
from duecourse.api.idempotency import GRACE_MS
from duecourse.base.times import DAY_MS, format_instant
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.many_tasks import TaskFilter
from duecourse.ledger.operation_types import KEPT_MS, KeyedRequest, SavedResponse
from duecourse.ledger.task import Ending, Shard, Status
from duecourse.settings import Settings
from tests.support.clock import HandClock
from tests.support.functions import Context
from tests.support.kinds import Outbox
from tests.support.ledger import bring, claim, settle, stored_task
from tests.support.requests import DAILY, MEETING, WEBHOOK, WEEKLY, Answer, ask, wrong
from tests.support.wired import Wire, wired_with

KEY = '"8e03978e-40d5-43e8-bc93-6894a57f9324"'
REMAINING_MS = 15_000


def keyed(method: str, path: str, body: Any = None, key: str = KEY, query: str = "") -> Answer:
    return ask(method, path, body, Context(REMAINING_MS), query, idempotency_key=key)


def count(ledger: EmbeddedLedger, queue: str = "default") -> int:
    stats = ledger.stats(Shard(queue))
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
    path: str, body: Any, queue: str, tasks: int, ledger: EmbeddedLedger, clock: HandClock
) -> None:
    first = keyed("POST", path, body)
    clock.advance(KEPT_MS - 1)
    assert keyed("POST", path, body) == first
    assert count(ledger, queue) == tasks
    clock.advance(1)
    assert keyed("POST", path, body) != first, "a day later it is another request"


@pytest.mark.parametrize(("method", "body", "status"), [("PATCH", {"delay": 60}, 200), ("DELETE", None, 204)])
def test_a_change_is_made_once(method: str, body: Any, status: int, ledger: EmbeddedLedger, clock: HandClock) -> None:
    bring(ledger, "scheduled")
    first = keyed(method, "/tasks/a", body)
    moved = ledger.get("default", "a")
    clock.advance(10_000)
    assert (first.status, keyed(method, "/tasks/a", body)) == (status, first)
    assert ledger.get("default", "a") == moved


def test_a_refusal_stays_too(ledger: EmbeddedLedger) -> None:
    first = keyed("PATCH", "/tasks/a", {"delay": 60})
    bring(ledger, "scheduled")
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
def test_a_key_stands_for_one_request(method: str, path: str, body: Any, query: str, ledger: EmbeddedLedger) -> None:
    keyed("DELETE", "/tasks/a", query="force=false")
    if path == "/tasks/batch":
        body = {"tasks": [body]}
    answer = keyed(method, path, body, query=query)
    assert (answer.status, answer.body["type"]) == (422, "urn:duecourse:problem:key-reused")
    assert "send a new key" in answer.body["detail"]
    assert ledger.shards() == []


def test_a_key_stands_for_one_method(ledger: EmbeddedLedger) -> None:
    assert keyed("DELETE", "/tasks/a", {"delay": 60}).status == 404
    bring(ledger, "scheduled")
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
def test_a_key_that_is_none_is_refused_with_what_one_is(key: str, ledger: EmbeddedLedger) -> None:
    answer = keyed("POST", "/tasks", WEBHOOK, key)
    assert (answer.status, answer.body["type"]) == (400, "urn:duecourse:problem:malformed-key")
    assert 'in double quotes: "8e03978e-' in answer.body["detail"]
    assert ledger.shards() == []


@pytest.mark.parametrize("key", ['"a"', ' "a" ', '"a b;c=\\"d\\\\"', '"' + "x" * 255 + '"'])
def test_a_key_may_be_any_string_of_a_header(key: str, ledger: EmbeddedLedger) -> None:
    assert keyed("POST", "/tasks", WEBHOOK, key).status == 201
    assert keyed("POST", "/tasks", WEBHOOK, key).status == 201
    assert count(ledger) == 1


def test_where_nothing_is_changed_a_key_says_nothing(ledger: EmbeddedLedger) -> None:
    bring(ledger, "scheduled")
    assert keyed("GET", "/tasks/a", key="nonsense").status == 200
    ledger.cancel("default", ["a"])
    assert keyed("GET", "/tasks/a", key=KEY).body["task"]["state"] == "cancelled"


def test_the_first_one_still_under_way_is_told_with_a_time_to_come_again(ledger: EmbeddedLedger, wire: Wire) -> None:
    """The other is asked while the first is in its engine's call: a store that asks is where that is."""
    others: list[Answer] = []

    class Slow:
        def __getattr__(self, verb: str) -> Any:
            return getattr(ledger, verb)

        def add(self, *given: Any, **named: Any) -> Any:
            if not others:
                others.append(keyed("POST", "/tasks", WEBHOOK))
                others.append(keyed("POST", "/tasks", WEBHOOK | {"delay": 1}))
            return ledger.add(*given, **named)

    wire(ledger=Slow())
    assert keyed("POST", "/tasks", WEBHOOK).status == 201
    busy, reused = others
    assert (busy.status, busy.body["reason"]) == (409, "under_way")
    assert int(busy.headers["Retry-After"]) == (REMAINING_MS + GRACE_MS) // 1000
    assert reused.status == 422
    assert count(ledger) == 1


class Dying:
    """A ledger on whose add the function dies: its first calls have happened, and nobody hears of it."""

    def __init__(self, ledger: EmbeddedLedger, error: BaseException) -> None:
        self._ledger = ledger
        self._error = error

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._ledger, verb)

    def add(self, *given: Any, **named: Any) -> Any:
        self._ledger.add(*given, **named)
        raise self._error

    def put_schedule(self, *given: Any, **named: Any) -> Any:
        self._ledger.put_schedule(*given, **named)
        raise self._error

    def idempotency(self) -> Any:
        return Unending(self._ledger.idempotency())


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
    path: str, body: Any, done: bool, ledger: EmbeddedLedger, clock: HandClock, wire: Wire
) -> None:
    wire(ledger=Dying(ledger, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        keyed("POST", path, body)
    wire(ledger=ledger)
    before = count(ledger)
    clock.advance(REMAINING_MS + GRACE_MS - 1)
    assert keyed("POST", path, body).status == 409
    clock.advance(1)
    if done:
        clock.advance(3_600_000)
        for task in claim(ledger):
            settle(ledger, task, Ending.DONE)
    answer = keyed("POST", path, body)
    items = answer.body.get("tasks") or [answer.body]
    assert (answer.status, {item["created"] for item in items}) == (200 if path.endswith("batch") else 201, {True})
    assert count(ledger) == before == len(items)
    if done:
        ids = [item.get("id") or item["task"]["id"] for item in items]
        assert {stored_task(ledger, task_id).status for task_id in ids} == {Status.DONE}


class Away:
    """A ledger that fails before anything is added."""

    def __init__(self, ledger: EmbeddedLedger) -> None:
        self._ledger = ledger

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._ledger, verb)

    def add(self, *_: Any, **__: Any) -> Any:
        raise errors.StoreUnavailable

    put_schedule = schedule = group = add


def test_a_fault_is_not_kept(ledger: EmbeddedLedger, wire: Wire) -> None:
    wire(ledger=Away(ledger))
    assert keyed("POST", "/tasks", WEBHOOK).status == 503
    assert keyed("POST", "/tasks", WEBHOOK).status == 503
    wire(ledger=ledger)
    assert keyed("POST", "/tasks", WEBHOOK | {"delay": 1}).status == 422, "but its key stays its own"
    assert keyed("POST", "/tasks", WEBHOOK).status == 201


@pytest.mark.parametrize("path", ["/tasks", "/tasks/batch"])
@pytest.mark.parametrize(
    ("state", "on_duplicate", "due_in_ms"),
    [("scheduled", "replace", 5_000), ("done", "keep", 5_000), ("cancelled", "keep", 5_000), ("scheduled", "keep", 0)],
)
def test_what_stood_before_a_request_that_failed_is_not_taken_for_what_that_added(
    path: str, state: str, on_duplicate: str, due_in_ms: int, ledger: EmbeddedLedger, clock: HandClock, wire: Wire
) -> None:
    bring(ledger, state)
    old = stored_task(ledger)
    clock.advance(1)
    body = WEBHOOK | {"id": "a", "on_duplicate": on_duplicate, "delay": 5}
    asked = body if path == "/tasks" else {"tasks": [body]}
    wire(ledger=Away(ledger))
    assert keyed("POST", path, asked).status == 503
    wire(ledger=ledger)
    assert keyed("POST", path, asked).status in {200, 201}
    assert stored_task(ledger).due_at == (clock.now() + due_in_ms if due_in_ms else old.due_at)
    assert stored_task(ledger).status is Status.SCHEDULED


Sent = tuple[str, dict[str, Any]]
TASK = {"kind": "webhook", "id": "a", "payload": {"url": "https://hooks.example.com/mine"}, "delay": 60}
THEIRS = TASK | {"payload": WEBHOOK["payload"]}
SERIES = WEEKLY | {"subject": "Theirs"}
SENDERS = {"senders": dict.fromkeys(("email", "phone"), Outbox())}


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize(
    ("theirs", "mine", "status"),
    [
        (("/tasks", THEIRS), ("/tasks", TASK | {"on_duplicate": "replace"}), 200),
        (("/tasks", THEIRS), ("/tasks", TASK | {"on_duplicate": "debounce"}), 200),
        (("/tasks", THEIRS), ("/tasks", TASK | {"on_duplicate": "reject"}), 409),
        (("/tasks", THEIRS), ("/tasks", TASK), 200),
        (("/tasks", THEIRS), ("/tasks/batch", {"tasks": [TASK | {"on_duplicate": "replace"}]}), 200),
        (("/reminders", MEETING), ("/reminders", MEETING | {"subject": "Mine"}), 409),
        (("/reminders", SERIES), ("/reminders", WEEKLY), 409),
        (("/schedules", DAILY), ("/schedules", DAILY | {"repeat": {"every": "PT1H"}}), 409),
    ],
)
def test_a_request_whose_first_try_did_nothing_is_done_over_what_another_added_just_before(
    theirs: Sent, mine: Sent, status: int, ended: bool, clock: HandClock, wire: Wire
) -> None:
    """What it is answered and does is what a first try would have, without a crash."""
    seen = []
    for crashes in (False, True):
        other = EmbeddedLedger(clock=clock)
        with wired_with(ledger=other, **SENDERS):
            assert ask("POST", *theirs).status == 201
            if ended:
                assert ask("DELETE", f"{theirs[0]}/{theirs[1]['id']}").status == 204
            clock.advance(1)
            if crashes:
                wire(ledger=Away(other), **SENDERS)
                assert keyed("POST", *mine).status == 503
            wire(ledger=other, **SENDERS)
            answer = keyed("POST", *mine)
            queues = sorted({shard.queue for shard in other.shards()})
            kept = [one for queue in queues for one in other.page(queue, TaskFilter(), None, 9).tasks]
            seen.append((answer.status, [one.payload_json for one in kept], answer.body.get("created")))
    assert seen[0] == seen[1]
    assert ended or seen[1][0] == status


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tasks", TASK | {"on_duplicate": "reject"}),
        ("/tasks", TASK | {"on_duplicate": "replace"}),
        ("/reminders", MEETING),
        ("/reminders", WEEKLY),
        ("/schedules", DAILY),
    ],
)
def test_a_repeat_is_answered_as_its_first_try_would_have_been(
    path: str, body: Any, ledger: EmbeddedLedger, clock: HandClock, wire: Wire
) -> None:
    lost = Dying(ledger, KeyboardInterrupt())
    wire(ledger=lost, **SENDERS)
    with pytest.raises(KeyboardInterrupt):
        keyed("POST", path, body)
    wire(ledger=ledger, **SENDERS)
    clock.advance(REMAINING_MS + GRACE_MS)
    assert (keyed("POST", path, body).status) == 201
    assert keyed("POST", path, body).status == 201


@pytest.mark.parametrize(("path", "body"), [("/tasks", TASK), ("/reminders", MEETING), ("/schedules", DAILY)])
def test_a_repeat_where_another_came_in_its_stead_or_after_it_says_that_it_cannot_know(
    path: str, body: Any, ledger: EmbeddedLedger, clock: HandClock, wire: Wire
) -> None:
    wire(ledger=Away(ledger), **SENDERS)
    mine = body | ({"on_duplicate": "reject"} if path == "/tasks" else {})
    assert keyed("POST", path, mine).status == 503
    wire(ledger=ledger, **SENDERS)
    clock.advance(1)
    theirs = {"/tasks": THEIRS, "/reminders": MEETING | {"subject": "Theirs"}, "/schedules": DAILY | {"limit": 3}}[path]
    assert ask("POST", path, theirs).status == 201
    answer = keyed("POST", path, mine)
    assert (answer.status, answer.body["reason"]) == (409, "changed")


def test_a_key_that_is_sent_again_a_day_later_is_another_request(ledger: EmbeddedLedger, clock: HandClock) -> None:
    assert keyed("POST", "/schedules", DAILY, '"add"').status == 201
    bring(ledger, "scheduled", delay_ms=9 * DAY_MS)
    for _ in range(2):
        moved = keyed("PATCH", "/tasks/a", {"delay": 5 * DAY_MS // 1_000})
        assert moved.body["task"]["due_at"] == format_instant(clock.at + 5 * DAY_MS)
        paused = keyed("PATCH", "/schedules/daily", {"paused": True}, '"pause"')
        assert (paused.status, ask("GET", "/schedules/daily").body["schedule"]["paused"]) == (200, True)
        assert ask("PATCH", "/schedules/daily", {"paused": False}).status == 200
        clock.advance(KEPT_MS)
    for _ in range(2):
        added = keyed("POST", "/tasks", TASK | {"on_duplicate": "replace", "delay": 5 * DAY_MS // 1_000}, '"replace"')
        assert (added.status, added.body["task"]["due_at"]) == (200, format_instant(clock.at + 5 * DAY_MS))
        clock.advance(KEPT_MS)


def test_what_was_reject_is_still_rejected_after_a_fault(ledger: EmbeddedLedger, clock: HandClock, wire: Wire) -> None:
    bring(ledger, "scheduled")
    clock.advance(1)
    body = WEBHOOK | {"id": "a", "on_duplicate": "reject"}
    wire(ledger=Away(ledger))
    assert keyed("POST", "/tasks", body).status == 503
    wire(ledger=ledger)
    assert keyed("POST", "/tasks", body).status == 409


def test_an_answer_that_cannot_be_kept_is_given_all_the_same(
    ledger: EmbeddedLedger, clock: HandClock, caplog: pytest.LogCaptureFixture, wire: Wire
) -> None:
    class Forgetful:
        def __getattr__(self, verb: str) -> Any:
            return getattr(ledger, verb)

        def idempotency(self) -> Any:
            return Unending(ledger.idempotency())

    wire(ledger=Forgetful())
    first = keyed("POST", "/tasks", WEBHOOK)
    assert first.status == 201
    assert "could not be stored" in caplog.text
    clock.advance(REMAINING_MS + GRACE_MS)
    again = keyed("POST", "/tasks", WEBHOOK)
    assert (again.status, again.body["task"]) == (201, first.body["task"])


@pytest.mark.parametrize("bad", [WEBHOOK | {"delay": "soon"}, WEBHOOK | {"kind": "strange"}, "{"])
def test_what_was_refused_for_its_fields_leaves_its_key_free(bad: Any) -> None:
    first = keyed("POST", "/tasks", bad)
    assert (first.status in {400, 422}, keyed("POST", "/tasks", bad)) == (True, first)
    assert keyed("POST", "/tasks", WEBHOOK).status == 201


def test_ids_are_random_without_a_key_and_an_id_that_is_given_is_taken(ledger: EmbeddedLedger) -> None:
    assert ask("POST", "/tasks", WEBHOOK).body["task"]["id"] != ask("POST", "/tasks", WEBHOOK).body["task"]["id"]
    assert keyed("POST", "/tasks", WEBHOOK | {"id": "a"}).body["task"]["id"] == "a"
    assert ledger.get("default", "a")


def test_a_tenant_that_is_none_is_refused_and_keeps_nothing(ledger: EmbeddedLedger, wire: Wire) -> None:
    wire(settings=Settings(tenant_header="X-Tenant"), ledger=ledger)
    answer = ask("POST", "/tasks", WEBHOOK, Context(), idempotency_key=KEY, x_tenant="a/b")
    assert wrong(answer).keys() == {"X-Tenant"}
