"""`schedules`: list, show, add, change, pause, resume, run, preview, backfill, delete and compare schedules."""

import json
from typing import Annotated

import typer

from duecourse.base.described_fields import fields_of
from duecourse.ledger.schedule import Overlap, Schedule

from ..errors import HarnessError
from . import console, formatting, options
from .api import ApiClient, Document, given_fields, quoted
from .command import Screen, confirm, on_ledger
from .console import Table
from .schedule_diff import diff
from .tasks import DEFAULTS, body_of, object_of
from .usage import Command, Group

STEP = 1_000
"""Number of schedules of one request."""


@on_ledger
def delete(  # noqa: PLR0913, PLR0917 - one for each option
    api: ApiClient,
    screen: Screen,
    id: Annotated[str | None, typer.Argument(help="Id of one schedule.")] = None,
    queue: Annotated[str, typer.Option(help="Queue of the schedules.")] = options.DEFAULT,
    kind: Annotated[str | None, typer.Option(help="Filter: schedules of this kind.")] = None,
    prefix: Annotated[str | None, typer.Option(help="Filter: schedules whose id begins so.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All schedules of the queue, without a filter.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the schedules and change nothing.")] = False,
    yes: options.Yes = False,
) -> None:
    """Delete a schedule, or many: no further occurrence comes, and a running one finishes.

    Examples:

        duecourse schedules delete daily-report --yes

        duecourse schedules delete --prefix import- --dry-run

        duecourse schedules delete --queue imports --kind report --yes
    """
    filtered = given_fields(kind=kind, prefix=prefix, all=every or None)
    if (id is None) is not bool(filtered) or (id is not None and dry_run):
        raise HarnessError("give the id of one schedule, or --kind, --prefix or --all for many")
    if id is None:
        _delete_many(api, screen, queue, filtered, dry_run=dry_run, yes=yes)
    elif confirm(f"Delete the schedule {id} of queue {queue}?", yes=yes, screen=screen):
        api.request("DELETE", f"/schedules/{quoted(id)}", {"queue": queue})
        screen.answer({"id": id}, lambda _: console.print_line(f"{id} deleted"))


def _delete_many(api: ApiClient, screen: Screen, queue: str, body: Document, *, dry_run: bool, yes: bool) -> None:
    count = _delete_each(api, queue, {**body, "dry_run": True})
    if count and not dry_run:
        question = f"{formatting.number_of(count, 'schedule')} of queue {queue} will be deleted. Go on?"
        if not confirm(question, yes=yes, screen=screen, instead=", or --dry-run to count only"):
            raise typer.Exit(1)
        count = _delete_each(api, queue, body)
    text = f"{formatting.number_of(count, 'schedule')} of queue {queue} {'would be ' if dry_run else ''}deleted"
    screen.answer({"purged": count, "dry_run": dry_run}, lambda _: console.print_line(text))


def _delete_each(api: ApiClient, queue: str, body: Document) -> int:
    """Number of schedules of all requests."""
    count: int = 0
    after: str | None = None
    while True:
        request = {**body, "limit": STEP, **given_fields(after=after)}
        answer = api.request("POST", "/schedules/purge", {"queue": queue}, request)
        count, after = count + answer["purged"], answer["next_after"]
        if after is None:
            return count


PAGE = 100
ABOUT = {one.name: one.about.shown for one in fields_of(Schedule)}
"""Descriptions of a schedule's fields."""
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
    api: ApiClient,
    screen: Screen,
    queue: Queue = options.DEFAULT,
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
        page = api.request("GET", "/schedules", given_fields(queue=queue, after=after, limit=str(most)))
        found, after = found + page["schedules"], page.get("next_after")
        if after is None or len(found) >= limit:
            break
    screen.answer({"schedules": found, **given_fields(next_after=after)}, _show_list)


@on_ledger
def show(api: ApiClient, screen: Screen, id: Id, queue: Queue = options.DEFAULT) -> None:
    """Print a schedule, its next ten occurrences and its last ten.

    Examples:

        duecourse schedules show daily-report
    """
    screen.answer(api.request("GET", _path(id), {"queue": queue}), lambda found: _show(found["schedule"]))


@on_ledger
def add(  # noqa: PLR0913, PLR0917 - one for each option
    api: ApiClient,
    screen: Screen,
    kind: Annotated[str, typer.Argument(help="Kind of the occurrences.")],
    payload: Annotated[str, typer.Option(help="Payload: a JSON object, or @FILE with one.")] = "{}",
    id: Annotated[str | None, typer.Option("--id", help="Id of the schedule.", show_default="a random one")] = None,
    cron: Cron = None,
    every: Every = None,
    rrule: RRule = None,
    time_zone: Zone = None,
    queue: Queue = options.DEFAULT,
    more: Annotated[
        str, typer.Option(help="Further fields of POST /schedules: a JSON object, or @FILE with one.")
    ] = "{}",
) -> None:
    """Add a schedule.

    Examples:

        duecourse schedules add webhook --id daily --cron '0 9 * * MON-FRI' --time-zone Europe/Vienna --payload '{"url": "https://hooks.example.com/daily"}'

        duecourse schedules add report --every PT24H --more '{"overlap": "skip"}'
    """  # noqa: E501 - a command is one line
    repeat = given_fields(cron=cron, every=every, rrule=rrule)
    given = {"kind": kind, "payload": object_of("--payload", payload), "queue": queue, "repeat": repeat}
    fields = given | given_fields(id=id, time_zone=time_zone)
    answer = api.request("POST", "/schedules", body=body_of(fields, more, DEFAULTS | {"repeat": {}}))
    screen.answer(
        answer, lambda found: _print_done(found["schedule"], "added" if found["created"] else "existed already")
    )


@on_ledger
def pause(api: ApiClient, screen: Screen, id: Id, queue: Queue = options.DEFAULT) -> None:
    """Pause a schedule: nothing fires, and a running occurrence finishes.

    Examples:

        duecourse schedules pause daily-report
    """
    _change(api, screen, id, queue, {"paused": True}, "paused")


@on_ledger
def resume(api: ApiClient, screen: Screen, id: Id, queue: Queue = options.DEFAULT) -> None:
    """Resume a schedule; its field `missed` says what becomes of the times that passed.

    Examples:

        duecourse schedules resume daily-report
    """
    _change(api, screen, id, queue, {"paused": False}, "resumed")


@on_ledger
def change(
    api: ApiClient,
    screen: Screen,
    id: Id,
    changes: Annotated[str, typer.Argument(help="Fields of PATCH /schedules/{id}: a JSON object, or @FILE with one.")],
    queue: Queue = options.DEFAULT,
) -> None:
    """Change fields of a schedule.

    Examples:

        duecourse schedules change daily-report '{"repeat": {"cron": "30 9 * * *"}, "if_version": 1}'
    """
    _change(api, screen, id, queue, object_of("CHANGES", changes), "changed")


@on_ledger
def run(api: ApiClient, screen: Screen, id: Id, queue: Queue = options.DEFAULT) -> None:
    """Add one occurrence now, beside the series.

    Examples:

        duecourse schedules run daily-report
    """
    answer = api.request("POST", _path(id, "/run"), {"queue": queue})
    screen.answer(answer, lambda found: console.print_line(f"{found['id']} added"))


@on_ledger
def backfill(
    api: ApiClient,
    screen: Screen,
    id: Id,
    since: Annotated[str, typer.Argument(help="Beginning of the span: RFC 3339.")],
    to: Annotated[str, typer.Argument(help="End of the span, which is not part of it.")],
    queue: Queue = options.DEFAULT,
    overlap: Annotated[
        Overlap | None,
        typer.Option(help=ABOUT["overlap"], show_default="the schedule's"),
    ] = None,
) -> None:
    """Add the occurrences of a past span now, some each second.

    Examples:

        duecourse schedules backfill daily-report 2026-11-01T00:00:00Z 2026-11-08T00:00:00Z

        duecourse schedules backfill daily-report 2026-11-01T00:00:00Z 2026-11-08T00:00:00Z --overlap queue
    """
    body = given_fields(to=to, overlap=overlap) | {"from": since}
    answer = api.request("POST", _path(id, "/backfill"), {"queue": queue}, body)
    screen.answer(answer, lambda found: console.out.print(f"{found['occurrences']} occurrences", markup=False))


@on_ledger
def preview(  # noqa: PLR0913, PLR0917 - one for each option
    api: ApiClient,
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
    repeat = given_fields(cron=cron, every=every, rrule=rrule)
    fields = {"repeat": repeat, "count": count} | given_fields(**{"time_zone": time_zone, "from": since})
    body = body_of(fields, more, {"repeat": {}, "count": TIMES})
    screen.answer(
        api.request("POST", "/schedules/preview", body=body), lambda found: _show_times(found["times"], NO_TIME)
    )


for name, command in {
    "list": list_schedules, "show": show, "add": add, "change": change, "pause": pause, "resume": resume, "run": run,
    "preview": preview, "backfill": backfill, "delete": delete, "diff": diff,
}.items():  # fmt: skip
    app.command(name, cls=Command)(command)


def _path(id: str, verb: str = "") -> str:
    return f"/schedules/{quoted(id)}{verb}"


def _change(api: ApiClient, screen: Screen, id: str, queue: str, body: Document, what: str) -> None:
    answer = api.request("PATCH", _path(id), {"queue": queue}, body)
    screen.answer(answer, lambda found: _print_done(found["schedule"], what))


def _print_done(schedule: Document, what: str) -> None:
    console.print_line(f"{schedule['id']} {what}. {schedule['why']}")


def _show_list(document: Document) -> None:
    table = Table("!id", "kind", "rule", "zone", "next", ">fired")
    for one in document["schedules"]:
        following = formatting.near(one["next"][0]["at"]) if one["next"] else "paused" if one["paused"] else "never"
        rule = json.dumps(one["repeat"], ensure_ascii=False).strip("{}").replace('"', "")
        table.add_row(
            one["id"],
            one["kind"],
            rule,
            one["time_zone"],
            following,
            str(one["fired"]),
        )
    console.print_table(table if document["schedules"] else "no schedule in this queue")


def _show(schedule: Document) -> None:
    table = Table("field", "value", show_header=False)
    for name, value in schedule.items():
        if name not in {"next", "recent"}:
            table.add_row(name, formatting.text_of(value))
    console.print_table(table)
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
        console.print_table(table)
    else:
        console.print_line(none)


def _show_recent(recent: list[Document]) -> None:
    table = Table("!last", "state", "note")
    for one in recent:
        stands_for = f"stands for {one['stands_for']} times" if one.get("stands_for") else ""
        table.add_row(one["id"], formatting.state(one["state"]), stands_for)
    console.print_table(table)
