"""`schedules`: list, show, add, change, pause, resume, run, preview, backfill, delete and compare schedules."""

import json
from typing import Annotated

import typer

from duecourse.domain.schedule import Overlap

from .. import console
from ..table import Table
from ..usage import Command, Group
from . import fields, words
from .changes import USUAL, body_of, object_of
from .command import Screen, on_ledger
from .place import Document, Ledger, quoted
from .schedule_delete import delete
from .schedule_diff import diff

PAGE = 100
TIMES = 10
"""Times of a preview, unless a number is given."""
NO_TIME = "The rule has no time from then on."
app = typer.Typer(cls=Group, no_args_is_help=True, help="List, show, add, pause and preview schedules.")

Id = Annotated[str, typer.Argument(help="Id of the schedule.")]
Queue = Annotated[str, typer.Option(help="Queue of the schedule.")]
Cron = Annotated[str | None, typer.Option(help="Five fields of cron, such as '0 9 * * MON-FRI'.")]
Every = Annotated[str | None, typer.Option(help="Elapsed time, such as PT24H.")]
RRule = Annotated[str | None, typer.Option("--rrule", help="Recurrence rule of RFC 5545.")]
Zone = Annotated[str | None, typer.Option("--time-zone", help="IANA time zone of the rule.", show_default="UTC")]


@on_ledger
def list_schedules(
    ledger: Ledger,
    screen: Screen,
    queue: Queue = fields.DEFAULT,
    limit: Annotated[int, typer.Option(help="Maximum number of schedules.", min=1)] = 100,
) -> None:
    """List the schedules of a queue, by id.

    Examples:

        duecourse schedules list

        duecourse schedules list --queue imports --json
    """
    found: list[Document] = []
    after = None
    while True:
        most = min(PAGE, limit - len(found))
        page = ledger.ask("GET", "/schedules", fields.given(queue=queue, after=after, limit=str(most)))
        found, after = found + page["schedules"], page.get("next_after")
        if after is None or len(found) >= limit:
            break
    screen.answer({"schedules": found, **fields.given(next_after=after)}, _show_list)


@on_ledger
def show(ledger: Ledger, screen: Screen, id: Id, queue: Queue = fields.DEFAULT) -> None:
    """Print a schedule, its next ten occurrences and its last ten.

    Examples:

        duecourse schedules show daily-report
    """
    screen.answer(ledger.ask("GET", _path(id), {"queue": queue}), lambda found: _show(found["schedule"]))


@on_ledger
def add(  # noqa: PLR0913, PLR0917 - one for each option
    ledger: Ledger,
    screen: Screen,
    kind: Annotated[str, typer.Argument(help="Kind of the occurrences.")],
    payload: Annotated[str, typer.Option(help="Payload: a JSON object, or @FILE with one.")] = "{}",
    id: Annotated[str | None, typer.Option("--id", help="Id of the schedule.", show_default="a random one")] = None,
    cron: Cron = None,
    every: Every = None,
    rrule: RRule = None,
    time_zone: Zone = None,
    queue: Queue = fields.DEFAULT,
    more: Annotated[
        str, typer.Option(help="Further fields of POST /schedules: a JSON object, or @FILE with one.")
    ] = "{}",
) -> None:
    """Add a schedule.

    Examples:

        duecourse schedules add webhook --id daily --cron '0 9 * * MON-FRI' --time-zone Europe/Vienna --payload '{"url": "https://hooks.example.com/daily"}'

        duecourse schedules add report --every PT24H --more '{"overlap": "skip"}'
    """  # noqa: E501 - a command is one line
    repeat = fields.given(cron=cron, every=every, rrule=rrule)
    given = {"kind": kind, "payload": object_of("--payload", payload), "queue": queue, "repeat": repeat}
    options = given | fields.given(id=id, time_zone=time_zone)
    answer = ledger.ask("POST", "/schedules", body=body_of(options, more, USUAL | {"repeat": {}}))
    screen.answer(answer, lambda found: _tell(found["schedule"], "added" if found["created"] else "existed already"))


@on_ledger
def pause(ledger: Ledger, screen: Screen, id: Id, queue: Queue = fields.DEFAULT) -> None:
    """Pause a schedule: nothing fires, and a running occurrence finishes.

    Examples:

        duecourse schedules pause daily-report
    """
    _change(ledger, screen, id, queue, {"paused": True}, "paused")


@on_ledger
def resume(ledger: Ledger, screen: Screen, id: Id, queue: Queue = fields.DEFAULT) -> None:
    """Resume a schedule; its field `missed` says what becomes of the times that passed.

    Examples:

        duecourse schedules resume daily-report
    """
    _change(ledger, screen, id, queue, {"paused": False}, "resumed")


@on_ledger
def change(
    ledger: Ledger,
    screen: Screen,
    id: Id,
    changes: Annotated[str, typer.Argument(help="Fields of PATCH /schedules/{id}: a JSON object, or @FILE with one.")],
    queue: Queue = fields.DEFAULT,
) -> None:
    """Change fields of a schedule.

    Examples:

        duecourse schedules change daily-report '{"repeat": {"cron": "30 9 * * *"}, "if_version": 1}'
    """
    _change(ledger, screen, id, queue, object_of("CHANGES", changes), "changed")


@on_ledger
def run(ledger: Ledger, screen: Screen, id: Id, queue: Queue = fields.DEFAULT) -> None:
    """Add one occurrence now, beside the series.

    Examples:

        duecourse schedules run daily-report
    """
    answer = ledger.ask("POST", _path(id, "/run"), {"queue": queue})
    screen.answer(answer, lambda found: console.say_line(f"{found['id']} added"))


@on_ledger
def backfill(
    ledger: Ledger,
    screen: Screen,
    id: Id,
    since: Annotated[str, typer.Argument(help="Beginning of the span: RFC 3339.")],
    to: Annotated[str, typer.Argument(help="End of the span, which is not part of it.")],
    queue: Queue = fields.DEFAULT,
    overlap: Annotated[
        Overlap | None,
        typer.Option(help="Treatment of an occurrence beside a running one.", show_default="the schedule's"),
    ] = None,
) -> None:
    """Add the occurrences of a past span now, some each second.

    Examples:

        duecourse schedules backfill daily-report 2026-11-01T00:00:00Z 2026-11-08T00:00:00Z

        duecourse schedules backfill daily-report 2026-11-01T00:00:00Z 2026-11-08T00:00:00Z --overlap queue
    """
    body = fields.given(to=to, overlap=overlap) | {"from": since}
    answer = ledger.ask("POST", _path(id, "/backfill"), {"queue": queue}, body)
    screen.answer(answer, lambda found: console.out.print(f"{found['occurrences']} occurrences", markup=False))


@on_ledger
def preview(  # noqa: PLR0913, PLR0917 - one for each option
    ledger: Ledger,
    screen: Screen,
    cron: Cron = None,
    every: Every = None,
    rrule: RRule = None,
    time_zone: Zone = None,
    since: Annotated[
        str | None, typer.Option("--from", help="Time from which on: RFC 3339.", show_default="now")
    ] = None,
    count: Annotated[int, typer.Option(help="Maximum number of times.", min=1, max=1_000)] = TIMES,
    more: Annotated[str, typer.Option(help="Further fields of POST /schedules/preview.")] = "{}",
) -> None:
    """Print the times of a rule; nothing is stored.

    Examples:

        duecourse schedules preview --cron '30 2 * * *' --time-zone Europe/Vienna --from 2027-03-27T00:00:00Z
    """
    repeat = fields.given(cron=cron, every=every, rrule=rrule)
    options = {"repeat": repeat, "count": count} | fields.given(**{"time_zone": time_zone, "from": since})
    body = body_of(options, more, {"repeat": {}, "count": TIMES})
    screen.answer(
        ledger.ask("POST", "/schedules/preview", body=body), lambda found: _show_times(found["times"], NO_TIME)
    )


for name, command in {
    "list": list_schedules, "show": show, "add": add, "change": change, "pause": pause, "resume": resume, "run": run,
    "preview": preview, "backfill": backfill, "delete": delete, "diff": diff,
}.items():  # fmt: skip
    app.command(name, cls=Command)(command)


def _path(id: str, verb: str = "") -> str:
    return f"/schedules/{quoted(id)}{verb}"


def _change(ledger: Ledger, screen: Screen, id: str, queue: str, body: Document, what: str) -> None:
    answer = ledger.ask("PATCH", _path(id), {"queue": queue}, body)
    screen.answer(answer, lambda found: _tell(found["schedule"], what))


def _tell(schedule: Document, what: str) -> None:
    console.say_line(f"{schedule['id']} {what}. {schedule['why']}")


def _show_list(document: Document) -> None:
    table = Table("!id", "kind", "rule", "zone", "next", ">fired")
    for one in document["schedules"]:
        following = words.near(one["next"][0]["at"]) if one["next"] else "paused" if one["paused"] else "never"
        rule = json.dumps(one["repeat"], ensure_ascii=False).strip("{}").replace('"', "")
        table.add_row(
            one["id"],
            one["kind"],
            rule,
            one["time_zone"],
            following,
            str(one["fired"]),
        )
    console.show(table if document["schedules"] else "no schedule in this queue")


def _show(schedule: Document) -> None:
    table = Table("field", "value", show_header=False)
    for name, value in schedule.items():
        if name not in {"next", "recent"}:
            table.add_row(name, words.text_of(value))
    console.show(table)
    console.out.print()
    _show_times(schedule["next"], f"No occurrence is to come. {schedule['why']}")
    if schedule["recent"]:
        console.out.print()
        _show_recent(schedule["recent"])


def _show_times(times: list[Document], none: str) -> None:
    table = Table("next, in the zone", "UTC", "note")
    for one in times:
        table.add_row(one["local"], one["at"], "the clocks have changed" if one.get("clock_change") else "")
    if times:
        console.show(table)
    else:
        console.say_line(none)


def _show_recent(recent: list[Document]) -> None:
    table = Table("!last", "state", "note")
    for one in recent:
        stands_for = f"stands for {one['stands_for']} times" if one.get("stands_for") else ""
        table.add_row(one["id"], words.state(one["state"]), stands_for)
    console.show(table)
