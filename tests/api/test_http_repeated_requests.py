"""Each route that changes something, sent again with its key after its function died between work and answer."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from duecourse.api.idempotency import GRACE_MS
from duecourse.api.request import CHANGING, READING
from duecourse.app import App
from duecourse.errors import StoreUnavailable
from duecourse.guard.http_types import HttpAnswer, HttpRequest
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.many_tasks import TaskFilter
from duecourse.ledger.operation_types import KeyedRequest, Lease, SavedResponse
from duecourse.ledger.schedule import backfill_id
from duecourse.ledger.task import Ending, NewTask, Settlement, Shard, Task
from duecourse.schedules.calendar import Calendar
from duecourse.schedules.firing import Firer
from tests.support.callers import PAYLOAD, Caller, Scene, scene
from tests.support.clock import HandClock
from tests.support.functions import Context, load
from tests.support.kinds import Outbox, answer
from tests.support.requests import DAILY, MEETING, WEBHOOK, WEEKLY, Answer, ask
from tests.support.routes_and_roles import ASKED, CASES, RouteRequest
from tests.support.schedules import fire_due
from tests.support.stores import Beginning
from tests.support.wired import Wire, wired_with

pytestmark = pytest.mark.slow

KEY = '"8e03978e-40d5-43e8-bc93-6894a57f9324"'
REMAINING_MS = 15_000
LEASE_MS = 3_600_000
AT = "2099-03-09T08:00:00Z"
OWNER = Caller("-")
SPAN_AT = 1_772_409_600_000
"""Beginning of the span that is filled."""
BULK = 3
Do = Callable[["Stage"], object]


class Ok:
    """An HttpCaller that always gets the same answer."""

    def call(self, _request: HttpRequest) -> HttpAnswer:
        return answer(200, {"status": "ok"})


class Cut:
    """Requests whose function dies before their answers are kept."""

    def __init__(self, idempotency: Any) -> None:
        self._idempotency = idempotency

    def begin(self, sent: KeyedRequest, owner: bytes, lock_ms: int) -> SavedResponse:
        begun: SavedResponse = self._idempotency.begin(sent, owner, lock_ms)
        return begun

    def note(self, sent: KeyedRequest, owner: bytes, note: bytes) -> bool:
        return bool(self._idempotency.note(sent, owner, note))

    def __getattr__(self, verb: str) -> Any:
        def lose(*_: Any) -> None:
            raise StoreUnavailable

        return lose


class CutStore:
    """The ledger of such a function."""

    def __init__(self, ledger: EmbeddedLedger) -> None:
        self._ledger = ledger

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._ledger, verb)

    def idempotency(self) -> Any:
        return Cut(self._ledger.idempotency())


class Stage(NamedTuple):
    """A ledger with one of each, and the way in."""

    ledger: EmbeddedLedger
    clock: HandClock
    of: Scene

    def ask(self, method: str, path: str, body: Any = None, query: str = "", **headers: str) -> Answer:
        return ask(method, path, body, Context(REMAINING_MS), query, **headers)

    def do(self, method: str, path: str, body: Any = None, query: str = "") -> Answer:
        """A request without a key, which is acknowledged."""
        done = self.ask(method, path, body, query)
        assert done.status < 300, done
        return done

    def of_task(self, method: str, id: str, body: Any = None, more: str = "", force: str = "") -> Answer:
        return self.do(method, f"/tasks/{id}{more}", body, f"queue={self.of.queue}{force}")

    def world(self) -> list[Any]:
        """All that the ledger has, as it is."""
        queues = sorted({shard.queue for shard in self.ledger.shards()})
        found: list[Any] = []
        for queue in queues:
            found += [queue, self.ledger.settings_of([queue])]
            found += self.ledger.page(queue, TaskFilter(), None, 100).tasks
            found += sorted(self.ledger.schedules(queue, "", 100).schedules, key=lambda one: one.schedule.id)
        found.append(self.ledger.schedule(self.of.queue, backfill_id(self.of.schedule, SPAN_AT)))
        return found


def no(_: Stage) -> None:
    """Nothing."""


def task(verb: str, name: str, body: Any = None, more: str = "", force: str = "") -> Do:
    return lambda on: on.of_task(verb, getattr(on.of, name), body, more, force)


def added(name: str, **fields: Any) -> Do:
    def add(on: Stage) -> object:
        body = WEBHOOK | {"id": getattr(on.of, name), "queue": on.of.queue} | fields
        return on.do("POST", "/tasks", body)

    return add


def schedule(verb: str, body: Any = None, more: str = "") -> Do:
    return lambda on: on.do(verb, f"/schedules/{on.of.schedule}{more}", body, f"queue={on.of.queue}")


def schedule_anew(on: Stage) -> object:
    on.clock.advance(1)
    return on.do("POST", "/schedules", DAILY | {"id": on.of.schedule, "queue": on.of.queue})


def reminder(verb: str, body: Any = None, name: str = "reminder", more: str = "") -> Do:
    return lambda on: on.do(verb, f"/reminders/{getattr(on.of, name)}{more}", body)


def reminder_anew(on: Stage) -> object:
    on.clock.advance(1)
    return on.do("POST", "/reminders", MEETING | {"id": on.of.reminder})


def series_anew(on: Stage) -> object:
    on.clock.advance(1)
    return on.do("POST", "/reminders", WEEKLY | {"id": on.of.series})


def queue(body: Any) -> Do:
    return lambda on: on.do("PATCH", f"/queues/{on.of.queue}", body)


def many_more(on: Stage) -> None:
    """Tasks that are due, and dead, from now on."""
    on.clock.advance(1_000)
    bring_dead(on, "later", 4)
    on.ledger.add([NewTask(f"later-{n}", "webhook", PAYLOAD, queue=on.of.queue, delay_ms=1_000) for n in range(4)])


def bring_dead(on: Stage, name: str, count: int) -> None:
    ids = [f"{name}-dead-{number}" for number in range(count)]
    on.ledger.add([NewTask(id, "webhook", PAYLOAD, queue=on.of.queue) for id in ids])
    kill(on, ids)


def kill(on: Stage, ids: Sequence[str]) -> None:
    for id in ids:
        taken = on.ledger.take(on.of.queue, id, lease_ms=LEASE_MS)
        assert taken
        on.ledger.settle(Shard(on.of.queue), [Settlement(id, "-", taken.token, Ending.DROP, detail="no use")])


def many_before(on: Stage) -> None:
    bring_dead(on, "first", 6)
    on.ledger.add(
        [NewTask(f"first-{n}", "webhook", PAYLOAD, queue=on.of.queue, delay_ms=600_000 + n) for n in range(6)]
    )
    on.clock.advance(1)


def some_schedules(on: Stage) -> None:
    for name in "bdfhjl":
        on.do("POST", "/schedules", DAILY | {"id": name, "queue": on.of.queue})


def more_schedules(on: Stage) -> None:
    for name in "abcde":
        on.ask("DELETE", f"/schedules/{name}", None, f"queue={on.of.queue}")
        on.do("POST", "/schedules", DAILY | {"id": name, "queue": on.of.queue})


def dies_again(on: Stage) -> None:
    kill(on, [on.of.dead])


def dead_die_again(on: Stage) -> None:
    many_more(on)
    kill(on, [task.id for task in on.ledger.page(on.of.queue, TaskFilter(), None, 100).tasks if task.id == on.of.dead])


def fill(on: Stage) -> None:
    """Have all occurrences of the span added: nothing is left of what adds them."""
    while on.ledger.schedule(on.of.queue, backfill_id(on.of.schedule, SPAN_AT)):
        assert fire_due(on.ledger, Firer(on.ledger, Calendar()).fire, Shard(on.of.queue))


def run_to_its_end(on: Stage) -> None:
    """Have the occurrence that was added by hand run."""
    [run] = [one for one in on.ledger.group(on.of.queue, on.of.schedule) if "@" in one.id]
    taken = on.ledger.take(on.of.queue, run.id, lease_ms=LEASE_MS, group=on.of.schedule)
    assert taken
    on.ledger.settle(
        on.ledger.shard_of(on.of.queue, run.id, on.of.schedule), [Settlement(run.id, "-", taken.token, Ending.DONE)]
    )


def extended(on: Stage) -> None:
    lease = Lease(on.of.running, on.of.token)
    assert on.ledger.extend(Shard(on.of.queue), [lease], LEASE_MS) > [0]


def saved(on: Stage) -> None:
    assert on.ledger.save(Shard(on.of.queue), Lease(on.of.running, on.of.token), '{"page":9}')


class Row(NamedTuple):
    """What a repeat of a route's request is tried with.

    `newer` is work that is acknowledged between the first try and the repeat, each in turn; `ask` is the request, where
    it is not that of the table of roles. `status` is the repeat's, where it is not the first one's. `before` makes what
    the request needs.
    """

    newer: Sequence[Do]
    ask: Callable[[Scene], RouteRequest] | None = None
    status: int | None = None
    before: Do = no


def of_queue(more: str, body: Any) -> Callable[[Scene], RouteRequest]:
    return lambda of: RouteRequest(f"/queues/{of.queue}{more}", body)


def new_body(**fields: Any) -> Callable[[Scene], Any]:
    return lambda of: WEBHOOK | {"id": of.waiting, "queue": of.queue} | fields


OTHER = {"url": "https://hooks.example.com/newer"}
ROWS: dict[str, list[Row]] = {
    "POST /tasks": [
        Row(
            [added("waiting", on_duplicate="replace", payload=OTHER)],
            lambda of: RouteRequest("/tasks", new_body(on_duplicate="replace")(of)),
            200,
        ),
        Row(
            [added("waiting", on_duplicate="debounce", payload=OTHER, delay=7_000)],
            lambda of: RouteRequest("/tasks", new_body(on_duplicate="debounce")(of)),
            200,
        ),
        Row(
            [added("running", on_duplicate="replace", payload=OTHER)],
            lambda of: RouteRequest("/tasks", new_body(id=of.running, on_duplicate="replace")(of)),
            200,
        ),
        Row([task("DELETE", "waiting")], lambda of: RouteRequest("/tasks", new_body(on_duplicate="replace")(of)), 200),
    ],
    "POST /tasks/batch": [
        Row(
            [added("waiting", on_duplicate="replace", payload=OTHER)],
            lambda of: RouteRequest("/tasks/batch", {"tasks": [new_body(on_duplicate="replace")(of), WEBHOOK]}),
        )
    ],
    "PATCH /tasks/{id}": [
        Row([task("PATCH", "waiting", {"delay": 70})]),
        Row([task("PATCH", "waiting", {"delay": 60})]),
        Row([task("DELETE", "waiting"), added("waiting")], status=409),
    ],
    "DELETE /tasks/{id}": [
        Row([added("waiting")]),
        Row([added("dead")], lambda of: RouteRequest(f"/tasks/{of.dead}", None, f"queue={of.queue}")),
        Row([no], lambda of: RouteRequest(f"/tasks/{of.dead}", None, f"queue={of.queue}")),
        Row([added("running")], lambda of: RouteRequest(f"/tasks/{of.running}", None, f"queue={of.queue}&force=true")),
    ],
    "POST /tasks/{id}/replay": [
        Row([dies_again]),
        Row([task("DELETE", "dead"), added("dead")]),
    ],
    "POST /tasks/{id}/begin": [Row([no])],
    "POST /tasks/{id}/settle": [Row([added("running")], status=409)],
    "POST /tasks/{id}/extend": [Row([extended])],
    "POST /tasks/{id}/save": [Row([saved])],
    "POST /reminders": [
        Row(
            [reminder("PATCH", {"starts_at": "2099-05-02T08:00:00Z"}), reminder("DELETE")],
            lambda of: RouteRequest("/reminders", MEETING | {"id": of.reminder}),
            before=reminder("DELETE"),
        ),
        Row(
            [reminder("PATCH", {"subject": "Newer"}, "series")],
            lambda of: RouteRequest("/reminders", WEEKLY | {"id": of.series}),
            before=reminder("DELETE", name="series"),
        ),
    ],
    "PATCH /reminders/{id}": [
        Row([reminder("PATCH", {"starts_at": "2099-05-02T08:00:00Z"})]),
        Row([reminder("DELETE"), reminder_anew], status=409),
        Row(
            [reminder("PATCH", {"subject": "Newer"}, "series")],
            lambda of: RouteRequest(f"/reminders/{of.series}", {"subject": "Older"}),
            409,
        ),
        Row([no], lambda of: RouteRequest(f"/reminders/{of.series}", {"subject": "Older"})),
    ],
    "DELETE /reminders/{id}": [
        Row([reminder_anew]),
        Row([series_anew], lambda of: RouteRequest(f"/reminders/{of.series}")),
    ],
    "PATCH /reminders/{id}/occurrences/{at}": [
        Row([reminder("PATCH", {"starts_at": "2099-03-11T08:00:00Z"}, "series", f"/occurrences/{AT}")], status=409),
        Row([reminder("DELETE", None, "series", f"/occurrences/{AT}")], status=409),
    ],
    "DELETE /reminders/{id}/occurrences/{at}": [Row([reminder("DELETE", name="series"), series_anew])],
    "POST /schedules": [
        Row(
            [schedule("PATCH", {"paused": True})],
            lambda of: RouteRequest("/schedules", DAILY | {"id": of.schedule, "queue": of.queue}),
            before=schedule("DELETE"),
        )
    ],
    "PATCH /schedules/{id}": [
        Row([schedule("PATCH", {"paused": False})], status=409),
        Row([schedule("DELETE"), schedule_anew], status=409),
    ],
    "DELETE /schedules/{id}": [Row([schedule_anew])],
    "POST /schedules/purge": [
        Row([more_schedules], before=some_schedules),
        Row(
            [more_schedules],
            lambda of: RouteRequest("/schedules/purge", {"all": True, "limit": BULK}, f"queue={of.queue}"),
            before=some_schedules,
        ),
    ],
    "POST /schedules/{id}/run": [Row([run_to_its_end]), Row([schedule("DELETE"), schedule_anew])],
    "POST /schedules/{id}/backfill": [Row([no]), Row([fill])],
    "POST /queries": [Row([no], lambda _of: RouteRequest("/queries", ASKED))],
    "PATCH /queues/{queue}": [
        Row([queue({"paused": False})], status=409),
        Row([queue({"max_running": 5})], status=409),
    ],
    "POST /queues/{queue}/dead/replay": [
        Row([many_more], of_queue("/dead/replay", {"limit": BULK}), before=many_before),
        Row([dead_die_again], of_queue("/dead/replay", {"limit": BULK, "rate": "1/s"}), before=many_before),
    ],
    "POST /queues/{queue}/purge": [
        Row([many_more], of_queue("/purge", {"state": state, "limit": BULK}), before=many_before)
        for state in ("dead", "scheduled")
    ],
    "POST /queues/{queue}/cancel": [
        Row([many_more], of_queue("/cancel", {"state": "scheduled", "limit": BULK}), before=many_before),
        Row([many_more], of_queue("/cancel", {"kind": "webhook", "force": True, "limit": 9}), before=many_before),
    ],
}
EACH = [(route, row, between) for route, rows in ROWS.items() for row in rows for between in ((), row.newer)]


def without_lease_ends(world: list[Any], is_meant: bool) -> list[Any]:
    return [replace(one, lease_expires_at=0) if is_meant and isinstance(one, Task) else one for one in world]


def changing() -> set[str]:
    api = load("enqueue_http").api
    every = api.every_route()
    return {
        f"{route.method} {route.openapi_path}"
        for route in every
        if route.method in CHANGING and route.openapi_path not in READING
    }


def test_every_route_that_changes_something_has_a_row() -> None:
    assert changing() == ROWS.keys()


@pytest.fixture
def app(ledger: EmbeddedLedger) -> Iterator[App]:
    with wired_with(ledger=ledger, senders=dict.fromkeys(("email", "phone"), Outbox()), http=Ok()) as app:
        yield app


BEGINNING = Beginning[Scene]()


@pytest.fixture
def stage(ledger: EmbeddedLedger, clock: HandClock, app: App) -> Stage:
    def call_as(_who: Caller, method: str, path: str, body: object = None, query: str = "", **headers: str) -> Answer:
        return ask(method, path, body, query=query, **headers)

    assert app.ledger
    return Stage(ledger, clock, BEGINNING.given(ledger, lambda: scene(ledger, call_as, OWNER, "one")))


@pytest.mark.parametrize(("route", "row", "newer"), EACH)
def test_what_a_request_did_is_not_done_again_over_newer_work(
    route: str, row: Row, newer: Sequence[Do], stage: Stage, wire: Wire
) -> None:
    row.before(stage)
    stage.clock.advance(2_000)
    asked, method = (row.ask or CASES[route].ask)(stage.of), route.partition(" ")[0]
    sent = (method, asked.path, asked.body, asked.query)
    before = stage.world()
    parts = {"senders": dict.fromkeys(("email", "phone"), Outbox()), "http": Ok()}
    wire(ledger=CutStore(stage.ledger), **parts)
    first = stage.ask(*sent, idempotency_key=KEY)
    assert first.status < 300, first
    wire(ledger=stage.ledger, **parts)
    assert stage.world() != before or route in {"POST /tasks", "POST /reminders", "POST /schedules"}
    stage.clock.advance(100)
    for work in newer:
        work(stage)
    stage.clock.advance(REMAINING_MS + GRACE_MS)
    done = stage.world()
    second = stage.ask(*sent, idempotency_key=KEY)
    is_begin = route == "POST /tasks/{id}/begin"  # a worker that begins has the whole of its lease
    assert without_lease_ends(stage.world(), is_begin) == without_lease_ends(done, is_begin)
    assert second.status == (row.status if newer and row.status else first.status), second
    assert stage.ask(*sent, idempotency_key=KEY) == second, "the answer of the repeat is kept"
    if "limit" in str(asked.body) and not newer:
        assert {**second.body, "next_cursor": 0} == {**first.body, "next_cursor": 0}


def test_a_replacement_whose_key_was_noted_twice_takes_what_was_added_just_before(
    wire: Wire, ledger: EmbeddedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire(ledger=ledger)
    kept = type(ledger.idempotency())
    begin = kept.begin

    def twice(self: Any, sent: KeyedRequest, owner: bytes, lock_ms: int) -> SavedResponse:
        begin(self, sent, owner, lock_ms)  # whose reply is lost
        return begin(self, sent, owner, lock_ms)

    monkeypatch.setattr(kept, "begin", twice)
    task = {"id": "a", "kind": "webhook", "payload": {"url": "https://example.com/1"}, "delay": 60}
    assert ask("POST", "/tasks", task).status == 201
    newer = {**task, "payload": {"url": "https://example.com/2"}, "on_duplicate": "replace"}
    assert ask("POST", "/tasks", newer, idempotency_key=KEY).status == 200
    assert ask("GET", "/tasks/a").body["task"]["payload"]["url"] == "https://example.com/2"
