"""A caller in Python who hands over anything at all hears of it as over HTTP: by field, and never as a TypeError."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from duecourse import Client, ReminderClient, ScheduleClient, errors
from duecourse.client import typed_dicts as client_fields
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.queries.http import QUERY_ID
from tests.support.kinds import Ready
from tests.support.ledger import bring
from tests.support.requests import MEETING, POLL
from tests.support.wired import wired_with

ODD: list[Any] = [
    *(None, True, 0, -1, 1.5, float("nan"), "", "a/b", "x" * 300, "\ud800", b"x", [], {}, (), {1}, object(), int),
    *([None], [1], {"a": 1}, {1: 2}, [{}], {"count": None, "per": []}),
]
HOOK = {"kind": "webhook", "payload": {"url": "https://example.com/hook"}}
GOOD: dict[str, dict[str, Any]] = {
    "wait": {"id": "nobody", "timeout": 0.01},
    "add": {**HOOK, "id": "new"},
    "add_many": {"tasks": [HOOK]},
    "get_queue": {"queue": "default"},
    "queue_history": {"queue": "default"},
    "set_queue": {"queue": "default"},
    "purge": {"state": "dead"},
    "cancel_many": {"state": "scheduled"},
    "query": POLL,
    "get_query": {"id": QUERY_ID},
    **{name: {} for name in ("list_dead", "replay_dead", "list", "list_queues")},
    **{name: {"id": "a"} for name in ("get", "cancel", "replay", "why")},
    "move": {"id": "a", "delay": 60},
    **{f"reminders.{verb}": MEETING for verb in ("add", "preview")},
    **{f"reminders.{verb}": {"id": "standup"} for verb in ("get", "cancel", "preview_standing")},
    "reminders.change": {"id": "standup", "starts_at": "2100-01-04T09:30:00Z"},
    "reminders.move_occurrence": {
        "id": "standup",
        "at": "2100-01-04T09:30:00Z",
        "starts_at": "2100-01-05T09:30:00Z",
    },
    "reminders.cancel_occurrence": {"id": "standup", "at": "2100-01-04T09:30:00Z"},
    "reminders.move": {"id": "standup", "starts_at": "2100-01-04T09:30:00Z"},
    "schedules.add": {**HOOK, "id": "daily", "repeat": {"every": "PT1H"}},
    "schedules.preview": {"repeat": {"every": "PT1H"}, "count": 3},
    "schedules.list": {},
    "schedules.change": {"id": "daily", "paused": True},
    "schedules.purge": {"prefix": "daily"},
    "schedules.backfill": {"id": "daily", "since": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z"},
    **{f"schedules.{verb}": {"id": "daily"} for verb in ("get", "delete", "run")},
}
MORE: dict[str, type] = {
    "add": client_fields.AddFields,
    "set_queue": client_fields.QueueFields,
    "purge": client_fields.PurgeFields,
    "schedules.purge": client_fields.PurgeSchedulesFields,
    "cancel_many": client_fields.CancelFields,
    "query": client_fields.QueryFields,
    "reminders.add": client_fields.ReminderFields,
    "reminders.preview": client_fields.ReminderFields,
    "reminders.change": client_fields.ReminderChanges,
    "schedules.add": client_fields.ScheduleFields,
    "schedules.preview": client_fields.TimesFields,
    "schedules.change": client_fields.ScheduleChanges,
    "schedules.backfill": client_fields.BackfillFields,
}
"""The fields that a verb takes beside those of its signature."""


ALSO = {
    "kind": {"payload", "all"},
    "prefix": {"all"},
    "delay": {"due_at"},
    "since": {"from", "to"},
    "starts_at": {"until"},
}
"""Fields that may be told in the place of another one."""


@pytest.fixture
def client(ledger: EmbeddedLedger) -> Iterator[Client]:
    bring(ledger, "leased")
    with wired_with(ledger=ledger, http=Ready()):
        yield Client.from_env()


def verb_of(client: Client, name: str) -> Callable[..., Any]:
    within, _, verb = name.rpartition(".")
    found: Callable[..., Any] = getattr(getattr(client, within) if within else client, verb)
    return found


def public(of: type) -> set[str]:
    return {name for name, one in vars(of).items() if inspect.isfunction(one) and not name.startswith("_")}


def refused(call: Callable[[], object]) -> set[str]:
    """The fields that a call is refused for; none where it is taken, or refused for what stands."""
    try:
        call()
    except errors.InvalidInput as error:
        return {problem.field.partition(".")[0] for problem in error.problems}
    except errors.DuecourseError:
        pass
    return set()


def test_every_verb_is_here() -> None:
    reminders, schedules = public(ReminderClient), public(ScheduleClient)
    assert GOOD.keys() == (public(Client) - {"close"}) | {
        *(f"reminders.{name}" for name in reminders),
        *(f"schedules.{name}" for name in schedules),
    }


@pytest.mark.parametrize("name", GOOD)
def test_whatever_is_handed_over_is_taken_or_refused_by_its_field(client: Client, name: str) -> None:
    verb = verb_of(client, name)
    own = [one.name for one in inspect.signature(verb).parameters.values() if one.kind is not one.VAR_KEYWORD]
    for field in {*own, *getattr(MORE.get(name), "__annotations__", ())}:
        for odd in ODD:
            told = refused(lambda: verb(**GOOD[name] | {field: odd}))  # noqa: B023 - called at once
            assert not told or told & {field, "body", *ALSO.get(field, ())}, (field, odd, told)


@pytest.mark.parametrize("tasks", [None, 7, "ab", {"kind": "webhook"}, object()])
def test_what_is_no_list_of_tasks_is_refused_as_http_refuses_it(client: Client, tasks: Any) -> None:
    with pytest.raises(errors.InvalidInput, match=r"^tasks: must be a valid list$"):
        client.add_many(tasks)


@pytest.mark.parametrize("force", ["no", "false", 0, None, []])
def test_force_is_true_or_false_and_nothing_that_might_be_either(client: Client, force: Any) -> None:
    for verb in (client.cancel, client.reminders.cancel):
        with pytest.raises(errors.InvalidInput, match=r"^force: must be true or false$"):
            verb("a", force=force)
    assert client.get("a").status == "leased"


def test_a_wrong_name_does_not_hide_what_else_is_wrong(client: Client) -> None:
    for verb, fields in (
        (lambda: client.move("a/b", delay="soon"), {"id", "delay"}),
        (lambda: client.replay_dead("a/b", limit=0), {"queue", "limit"}),
        (lambda: client.set_queue("a/b", priority=10), {"queue", "priority"}),
        (lambda: client.reminders.move("a/b", starts_at="soon"), {"id", "starts_at"}),
    ):
        assert refused(verb) == fields
