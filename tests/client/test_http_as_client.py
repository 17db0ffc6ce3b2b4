"""Each verb of the client and its route: the same input gives the same state and answer, or the same refusal."""

import inspect
import json
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import pytest

from duecourse import Client
from duecourse.api import problems
from duecourse.client.client import ReminderClient, ScheduleClient
from duecourse.errors import DuecourseError, QueryFailed
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.many_tasks import DeadGroups
from duecourse.queries.http import show_query
from duecourse.queues.http import decode_reached, show_dead, show_history, show_queue, show_replayed
from duecourse.reminders.http import show_added, show_moved, show_preview, show_reminder
from duecourse.schedules.http import show_schedule, show_upcoming
from duecourse.settings import Settings
from duecourse.tasks.http import show_batch, show_task, show_why
from tests.support.clock import HandClock
from tests.support.kinds import Ready
from tests.support.ledger import bring
from tests.support.matrix import some
from tests.support.requests import MEETING, POLL, WEEKLY, ask
from tests.support.stores import Beginning
from tests.support.wired import Wire
from tests.template.test_policies import ROUTES

pytestmark = pytest.mark.slow

Fields = dict[str, Any]
AT = "2100-01-04T09:30:00Z"
SECOND = "2099-03-09T08:00:00Z"
HOOK: Fields = {"kind": "webhook", "payload": {"url": "https://example.com/hook"}}
STATES = ("scheduled", "leased", "done", "cancelled", "dead", "absent")
OVER_HTTP_ALONE = {
    "POST /tasks/{id}/begin",
    "POST /tasks/{id}/settle",
    "POST /tasks/{id}/extend",
    "POST /tasks/{id}/save",
}
"""What `@task_handler`, `duecourse.extend` and `duecourse.save` do within a function of one's own."""
OF_THE_CLIENT = {"close", "wait"}
OF_THE_SERVICE = {"GET /health", "GET /openapi.json", "GET /docs"}


FLAGS: list[tuple[str, Any]] = [("force", "0")]
"""What says false in a query, which holds text alone; in Python False does."""
BY_FIELDS_ALONE = {
    "reminders.add",
    "reminders.preview",
    "schedules.add",
    "schedules.change",
    "schedules.preview",
    "purge",
    "cancel_many",
}
"""The verbs whose signature requires nothing, so that what is left out is told as over HTTP; others' is a TypeError."""


DAILY: Fields = {**HOOK, "id": "daily", "repeat": {"every": "PT24H"}, "starts_at": "2026-09-22T09:00:00Z"}


def show_listed(got: Any) -> Any:
    """A page of schedules as over HTTP."""
    more = {"next_after": got.next_after} if got.next_after else {}
    return {"schedules": list(map(show_schedule, got.schedules)), **more}


def show_purged(got: Any, asked: Fields) -> Any:
    """What became of schedules that were purged, as over HTTP."""
    return {"purged": got.schedules, "dry_run": asked.get("dry_run", False), "next_after": got.next_after}


class Pair(NamedTuple):
    """A route, which of a verb's fields stand in its query, and how what the verb answers is shown."""

    route: str
    show: Callable[[Any, Fields], Any]
    query: tuple[str, ...] = ()


PAIRS: dict[str, Pair] = {
    "add": Pair("POST /tasks", lambda got, _: {"task": show_task(got.task), "created": got.created}),
    "add_many": Pair("POST /tasks/batch", lambda got, asked: show_batch([one["id"] for one in asked["tasks"]], got)),
    "list": Pair(
        "GET /tasks",
        lambda got, _: {"tasks": list(map(show_task, got.tasks)), "next_cursor": got.next_cursor},
        ("queue", "state", "kind", "group", "error", "since", "cursor", "limit"),
    ),
    "get": Pair("GET /tasks/{id}", lambda got, _: {"task": show_task(got)}, ("queue",)),
    "why": Pair("GET /tasks/{id}/why", lambda got, _: show_why(got), ("queue",)),
    "move": Pair("PATCH /tasks/{id}", lambda got, _: {"task": show_task(got)}, ("queue",)),
    "cancel": Pair("DELETE /tasks/{id}", lambda got, _: got, ("queue", "force")),
    "replay": Pair("POST /tasks/{id}/replay", lambda got, _: {"task": show_task(got)}, ("queue",)),
    "list_dead": Pair(
        "GET /queues/{queue}/dead",
        lambda got, _: show_dead(DeadGroups(got.groups, got.next_cursor and decode_reached(got.next_cursor))),
        ("kind", "group", "error", "since", "cursor", "limit"),
    ),
    "replay_dead": Pair(
        "POST /queues/{queue}/dead/replay",
        lambda got, asked: show_replayed(got, dry_run=asked.get("dry_run", False)),
    ),
    "purge": Pair(
        "POST /queues/{queue}/purge",
        lambda got, asked: {
            "purged": got.tasks,
            "next_cursor": got.next_cursor,
            "dry_run": asked.get("dry_run", False),
        },
    ),
    "cancel_many": Pair(
        "POST /queues/{queue}/cancel",
        lambda got, asked: {
            "cancelled": got.tasks,
            "next_cursor": got.next_cursor,
            "dry_run": asked.get("dry_run", False),
        },
    ),
    "list_queues": Pair("GET /queues", lambda got, _: {"queues": list(map(show_queue, got))}),
    "get_queue": Pair("GET /queues/{queue}", lambda got, _: {"queue": show_queue(got)}),
    "queue_history": Pair("GET /queues/{queue}/history", lambda got, _: show_history(got), ("span",)),
    "set_queue": Pair("PATCH /queues/{queue}", lambda got, _: {"queue": show_queue(got)}),
    "query": Pair("POST /queries", lambda got, _: show_query(got)),
    "get_query": Pair("GET /queries/{id}", lambda got, _: show_query(got)),
    "reminders.add": Pair("POST /reminders", lambda got, asked: show_added(asked["id"], got)),
    "reminders.preview": Pair("POST /reminders/preview", lambda got, asked: show_preview(asked["id"], got)),
    "reminders.preview_standing": Pair("POST /reminders/preview", lambda got, asked: show_preview(asked["id"], got)),
    "reminders.get": Pair("GET /reminders/{id}", lambda got, _: show_reminder(got)),
    "reminders.move": Pair("PATCH /reminders/{id}", lambda got, _: show_moved(got)),
    "reminders.change": Pair("PATCH /reminders/{id}", lambda got, _: show_moved(got)),
    "reminders.cancel": Pair("DELETE /reminders/{id}", lambda got, _: got, ("force",)),
    "schedules.add": Pair(
        "POST /schedules", lambda got, _: {"schedule": show_schedule(got.schedule), "created": got.created}
    ),
    "schedules.list": Pair("GET /schedules", lambda got, _: show_listed(got), ("queue", "after", "limit")),
    "schedules.get": Pair("GET /schedules/{id}", lambda got, _: {"schedule": show_schedule(got)}, ("queue",)),
    "schedules.change": Pair("PATCH /schedules/{id}", lambda got, _: {"schedule": show_schedule(got)}, ("queue",)),
    "schedules.delete": Pair("DELETE /schedules/{id}", lambda got, _: got, ("queue",)),
    "schedules.purge": Pair("POST /schedules/purge", show_purged, ("queue",)),
    "schedules.run": Pair("POST /schedules/{id}/run", lambda got, _: {"id": got}, ("queue",)),
    "reminders.move_occurrence": Pair("PATCH /reminders/{id}/occurrences/{at}", lambda got, _: show_moved(got)),
    "reminders.cancel_occurrence": Pair("DELETE /reminders/{id}/occurrences/{at}", lambda got, _: got, ("force",)),
    "schedules.backfill": Pair("POST /schedules/{id}/backfill", lambda got, _: {"occurrences": got}, ("queue",)),
    "schedules.preview": Pair("POST /schedules/preview", lambda got, _: {"times": list(map(show_upcoming, got))}),
}
OVER_HTTP = {"schedules.preview": {"since": "from"}, "schedules.backfill": {"since": "from"}}
"""Fields of a verb that have another name over HTTP: `from` is a word of Python's own."""
RETRY: Fields = {"max_attempts": 3, "backoff": "PT2S", "factor": 3.5, "max_backoff": 60, "jitter": False}
RATE: Fields = {"count": 1, "per": "PT2S"}
PERSON: Fields = {"name": "Ada", "email": "ada@example.com", "phone": "+436641234567", "webhook": "https://a.example/"}
CHANGES: Fields = {
    "repeat": {"rrule": "FREQ=DAILY;BYHOUR=2", "exdates": [AT]},
    "time_zone": "Europe/Vienna",
    "starts_at": AT,
    "until": "2101-01-04T09:30:00Z",
    "gap": "skip",
    "fold": "both",
    "limit": 9,
    "jitter": "PT1M",
    "missed": "all",
    "catch_up": 60,
    "overlap": "queue",
    "retry": RETRY,
    "deadline": "PT1H",
    "notify_done": {"url": "https://a.example/"},
    "paused": True,
}
"""Of each field of a schedule another value than usual."""
ADDS = ("keep", "replace", "reject", "debounce")
TOLD: Fields = {"url": "https://a.example/"}
GOOD: dict[str, list[Fields]] = {
    "add": [
        {**HOOK, "id": "new"},
        *({**HOOK, "id": id, "on_duplicate": how} for id, how in product(STATES, ADDS)),
        {**HOOK, "id": "new", "queue": "mail", "delay": "PT5M", "retry": RETRY, "deadline": "PT1H", "max_wait": 60},
        {**HOOK, "id": "new", "due_at": AT, "deadline": "2100-01-05T09:30:00Z", "notify_done": TOLD},
        {**HOOK, "id": "new", "delay": 1.5, "notify_done": {"target": "report"}},
        {"kind": "poll", "payload": POLL, "id": "new"},
    ],
    "add_many": [{"tasks": [{**HOOK, "id": id, "delay": 5} for id in (*STATES, "absent")]}],
    "list": [
        *(
            {},
            {"limit": 2},
            {"state": "dead", "since": "PT1H"},
            {"error": "use"},
            {"since": AT},
            {"kind": "work", "state": "scheduled"},
            {"group": "g"},
        ),
        {"queue": "mail"},
    ],
    **{verb: [{"id": id} for id in STATES] for verb in ("get", "why", "replay")},
    "move": [
        *({"id": id, "delay": "PT1H", "force": force} for id, force in product(STATES, (False, True))),
        *({"id": "scheduled", "due_at": AT}, {"id": "scheduled", "delay": 5, "due_at": None}),
    ],
    "cancel": [{"id": id, "force": force} for id, force in product(STATES, (False, True))],
    "list_dead": [
        *({"queue": "default"}, {"queue": "default", "kind": "work", "error": "no #", "limit": 2}, {"queue": "none"}),
        *({"queue": "default", "group": "g"}, {"queue": "default", "since": "PT1H"}, {"queue": "mail", "since": AT}),
    ],
    "replay_dead": [
        {"queue": "default"},
        {"queue": "default", "error": "use", "delay": "PT1M"},
        {"queue": "default", "limit": 1, "rate": RATE, "kind": "work"},
        {"queue": "default", "dry_run": True},
        {"queue": "none"},
    ],
    "purge": [
        *({"queue": "default", "state": state} for state in ("scheduled", "done", "cancelled", "dead")),
        {"queue": "default", "state": "dead", "kind": "work", "group": "g", "older_than": "P1D", "limit": 1},
        {"queue": "default", "state": "dead", "error": "use"},
        {"queue": "default", "state": "dead", "dry_run": True, "cursor": None},
        {"queue": "none", "state": "dead"},
    ],
    "cancel_many": [
        *({"queue": "default", "kind": "work", "force": force} for force in (False, True)),
        {"queue": "default", "state": "scheduled", "group": "g", "limit": 1, "dry_run": False},
        {"queue": "default", "state": "leased", "force": True},
    ],
    "list_queues": [{}],
    "get_queue": [{"queue": "default"}, {"queue": "none"}],
    "queue_history": [
        *({"queue": "default", "span": span} for span in ("1h", "1d", "7d", "90d", "2h", None)),
        {"queue": "default"},
        {"queue": "none"},
    ],
    "set_queue": [
        {"queue": "mail", "max_running": 3, "tenant_max_running": 2, "rate": RATE, "priority": 0, "lease": 90},
        {"queue": "default", "paused": True, "retention": "P1D"},
        {"queue": "default", "paused": None, "rate": None, "lease": None},
        {"queue": "default"},
    ],
    "query": [
        POLL,
        {**POLL, "url": "https://api.example.com/ready", "result": "state", "max_age": 0, "timeout": 5},
        {**POLL, "failed_when": "state == 'open'"},
    ],
    "get_query": [{"id": "q-5d1c7a2f9be04e36a7c1f0d2934b8e65@api.example.com"}],
    "reminders.add": [
        *({**MEETING, "id": "new"}, MEETING, {**MEETING, "starts_at": AT}, {**MEETING, "id": "b", "data": {"a": 1}}),
        {**MEETING, "id": "new", "recipients": [PERSON], "remind_before": [60, "PT1H"], "html": "<p>{{ subject }}</p>"},
        *({**WEEKLY, "id": "new", "limit": 3}, WEEKLY, {**WEEKLY, "subject": "Other"}, {**MEETING, "id": "weekly"}),
    ],
    "reminders.preview": [MEETING, {**MEETING, "id": "new", "recipients": [PERSON], "time_zone": "Europe/Vienna"}],
    **{
        f"reminders.{verb}": [{"id": "standup"}, {"id": "weekly"}, {"id": "none"}]
        for verb in ("preview_standing", "get")
    },
    "reminders.move": [{"id": id, "starts_at": AT} for id in ("standup", "none")],
    "schedules.add": [
        {**DAILY, "id": "new", "retry": RETRY, "deadline": "PT1H", "overlap": "skip", "jitter": 5, "limit": 3},
        *(DAILY, {**DAILY, "repeat": {"cron": "0 9 * * *"}}, {**DAILY, "id": "b", "queue": "mail", "until": AT}),
        {**DAILY, "id": "new", **CHANGES, "kind": "report", "payload": {}},
    ],
    "schedules.list": [{}, {"limit": 1}, {"after": "daily"}, {"queue": "mail"}],
    **{f"schedules.{verb}": [{"id": "daily"}, {"id": "none"}] for verb in ("get", "delete", "run")},
    "schedules.purge": [
        *({"all": True, "dry_run": dry, "limit": 1} for dry in (True, False)),
        *({"kind": "webhook", "after": after} for after in ("a", "z")),
        {"prefix": "dai"},
        {"prefix": "x", "queue": "mail"},
        *({}, {"all": True, "kind": "webhook"}, {"all": True, "queue": "reminders"}),
    ],
    "schedules.change": [
        *(
            {"id": id, "paused": True, "if_version": version}
            for id, version in (("daily", 1), ("daily", 2), ("none", 1))
        ),
        {"id": "daily", "repeat": {"cron": "0 9 * * *"}, "time_zone": "Europe/Vienna", "limit": None},
        {"id": "daily", "paused": True},
        {"id": "daily", "if_version": 1, "repeat": {"cron": "@hourly"}},
        {"id": "daily", "if_version": 2, "limit": 3},
        {"id": "daily", **CHANGES},
        {"id": "daily", "until": None, "limit": None, "deadline": None, "notify_done": None},
        {"id": "none", "paused": True},
    ],
    "schedules.backfill": [
        {"id": id, "since": "2026-09-01T00:00:00Z", "to": "2026-09-05T00:00:00Z", "overlap": how}
        for id, how in (("daily", "skip"), ("daily", None), ("none", None))
    ],
    "schedules.preview": [
        {"repeat": DAILY["repeat"]},
        {"repeat": {"every": 60}, "since": AT, "count": 3},
        {
            "repeat": {"rrule": "FREQ=DAILY"},
            "time_zone": "Europe/Vienna",
            "starts_at": AT,
            "gap": "skip",
            "fold": "both",
        },
    ],
    "reminders.change": [
        {"id": "standup", "subject": "Longer"},
        {"id": "weekly", "subject": "Longer", "limit": 10, "if_version": 1},
        {"id": "weekly", "subject": "Longer", "if_version": 2},
        {"id": "weekly", "starts_at": AT, "until": "2100-05-05T09:30:00Z", "remind_before": ["PT1H"]},
    ],
    "reminders.cancel": [
        {"id": id, "force": force} for id, force in product(("standup", "weekly", "none"), (False, True))
    ],
    "reminders.move_occurrence": [
        *({"id": id, "at": SECOND, "starts_at": AT} for id in ("weekly", "standup", "none")),
        {"id": "weekly", "at": AT, "starts_at": SECOND},
    ],
    "reminders.cancel_occurrence": [{"id": id, "at": SECOND, "force": False} for id in ("weekly", "none")],
}
WRONG: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "a b",
    "soon",
    "x" * 300,
    [],
    {},
    [None],
    {"a": 1},
    [{"a": 1}],
    "2026-01-01",
]
WRONG_TEXT = ["a b", "x" * 300, "-", "soon", "0", "é"]
"""For what stands in a path or a query: all that these can hold."""


BEGINNING = Beginning[None]()


def fill(ledger: EmbeddedLedger, client: Client) -> None:
    """Add a task in each state, a schedule and reminders of both kinds."""
    for state in STATES:
        bring(ledger, state, state)
    client.reminders.add(**MEETING)
    client.schedules.add(**DAILY)
    client.reminders.add(**WEEKLY)


class Both:
    """Two ledgers alike: the client's, and the one that the functions are wired with."""

    def __init__(self, wire: Wire) -> None:
        self._wire, clock = wire, HandClock()
        self.client, own = self._made(clock)
        self.other, behind_http = self._made(clock)
        self._stores = (own, behind_http)

    def _made(self, clock: HandClock) -> tuple[Client, EmbeddedLedger]:
        ledger = EmbeddedLedger(clock)
        self._wire(Settings(targets={"report": "lambda:Report"}), ledger=ledger, http=Ready())
        client = Client.from_env()
        BEGINNING.given(ledger, lambda: fill(ledger, client))
        return client, ledger

    def state(self) -> tuple[Any, Any]:
        """All that stands in each."""
        return everything(self.client), everything(self.other)


def everything(client: Client) -> Any:
    queues = [show_queue(queue) for queue in client.list_queues()]
    tasks = [show_task(task) for queue in queues for task in client.list(queue["queue"], limit=100).tasks]
    schedules = [show_schedule(one) for queue in queues for one in client.schedules.list(queue["queue"]).schedules]
    return queues, tasks, schedules


def by_client(both: Both, name: str, fields: Fields) -> tuple[bool, Any]:
    """Whether a call is taken, and its answer or the problem that it would be over HTTP."""
    within, _, verb = name.rpartition(".")
    try:
        got = getattr(getattr(both.client, within) if within else both.client, verb)(**fields)
    except DuecourseError as error:
        return False, problems.problem_of(error).document
    return True, json.loads(json.dumps(PAIRS[name].show(got, fields)))


def by_http(name: str, fields: Fields) -> tuple[bool, Any]:
    method, path = PAIRS[name].route.split()
    left = {OVER_HTTP.get(name, {}).get(field, field): value for field, value in fields.items()}
    for field in [field for field in fields if f"{{{field}}}" in path]:
        path = path.replace(f"{{{field}}}", left.pop(field))
    query = "&".join(f"{field}={_text(left.pop(field))}" for field in PAIRS[name].query if field in left)
    answered = ask(method, path, None if method in {"GET", "DELETE"} else left, query=query)
    return answered.status < 400, answered.body


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.fixture
def both(wire: Wire) -> Both:
    return Both(wire)


def test_every_verb_and_every_route_is_here() -> None:
    own = {name for name, one in vars(Client).items() if inspect.isfunction(one) and name[0] != "_"}
    theirs = {f"reminders.{name}" for name, one in vars(ReminderClient).items() if name[0] != "_" and callable(one)}
    theirs |= {f"schedules.{name}" for name, one in vars(ScheduleClient).items() if name[0] != "_" and callable(one)}
    assert PAIRS.keys() == GOOD.keys() == (own | theirs) - OF_THE_CLIENT
    assert {pair.route for pair in PAIRS.values()} == ROUTES - OVER_HTTP_ALONE - OF_THE_SERVICE


@pytest.mark.parametrize(("name", "fields"), [(name, fields) for name, cases in GOOD.items() for fields in cases])
def test_what_is_asked_for_in_both_ways_is_answered_alike_and_leaves_the_same(
    both: Both, name: str, fields: Fields
) -> None:
    called, told = by_client(both, name, fields)
    taken, answered = by_http(name, fields)
    if name == "query" and told.get("status") == "failed":  # what the client tells, HTTP refuses with
        assert answered["type"] == problems.problem_of(QueryFailed()).document["type"]
    else:
        assert (called, told) == (taken, answered)
    mine, theirs = both.state()
    assert mine == theirs


@pytest.mark.parametrize("name", some(GOOD, 3))
def test_what_is_wrong_is_told_of_the_same_fields_in_the_same_words(both: Both, name: str, wire: Wire) -> None:
    for fields in wrong_inputs(name):
        told, answered = by_client(both, name, fields), by_http(name, fields)
        if told[0] and answered[0]:
            both = Both(wire)
        else:
            assert told == answered, fields


def others_of(fields: Fields, left_out: str) -> Fields:
    return {name: value for name, value in fields.items() if name != left_out}


def wrong_inputs(name: str) -> Iterator[Fields]:
    """Each field of a verb, wrong in every way, and all of them at once."""
    first, *others = GOOD[name]
    whole = {field: value for case in (first, *others) for field, value in case.items()}
    in_text = {field for field in whole if f"{{{field}}}" in PAIRS[name].route} | set(PAIRS[name].query)
    for field in whole:
        for wrong in WRONG_TEXT if field in in_text else WRONG:
            if (field, wrong) not in FLAGS:
                yield {**first, field: wrong}
    yield from (others_of(first, field) for field in first if name in BY_FIELDS_ALONE and field not in {"id", "queue"})
    if name in BY_FIELDS_ALONE | {"add", "set_queue", "query"}:
        yield {**first, "colour": "red"}
    yield {field: "a b" if field in in_text else [] for field in whole}
