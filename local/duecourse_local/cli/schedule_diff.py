"""`schedules diff`: what a deployment of a file of schedules would do, by the schedules that a ledger has."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from duecourse.base.described_fields import fields_of
from duecourse.errors import FieldError, InvalidInput
from duecourse.ledger.schedule import (
    AT_ADD,
    Entry,
    FileState,
    Fold,
    Gap,
    Progress,
    Rule,
    Schedule,
    ScheduleFile,
    ScheduleStatus,
    key_of,
)
from duecourse.ledger.task import DEADLINES_MS, DEFAULT_TENANT
from duecourse.schedules.calendar import Calendar

from ..errors import HarnessError
from ..project.place import here
from . import console, formatting
from .api import ApiClient, Document, RequestRejected
from .command import Screen, on_ledger
from .queues import every_queue

PAGE = 100
FILE = Annotated[
    Path | None, typer.Argument(help="File of schedules.", show_default="schedules.yaml of the project here")
]
COMPARED = ("kind", *(one.name for one in (*fields_of(Rule), *fields_of(Schedule))))
"""Fields of an answer that a file decides."""
FORBIDDEN = 403


@on_ledger
def diff(api: ApiClient, screen: Screen, file: FILE = None) -> None:
    """Print what a deployment of a file of schedules would add, change, delete and leave alone.

    Nothing is changed. Over an API, only the tenants are looked at that the file names.

    Examples:

        duecourse schedules diff schedules.yaml

        duecourse schedules diff schedules.yaml --json
    """
    screen.answer(compared(api, read(file or here().schedules)), _show)


def read(path: Path) -> ScheduleFile:
    """The file at a path. Raises HarnessError, which names every wrong field."""
    from duecourse.schedules.file_text import parse_file  # pydantic takes a while

    if not path.is_file():
        raise HarnessError(f"{path} is not there: name a file of schedules")
    try:
        return _checked(parse_file(path.read_text("utf-8")))
    except (InvalidInput, UnicodeDecodeError) as error:
        raise HarnessError(f"{path}: {error}") from error


def _checked(file: ScheduleFile) -> ScheduleFile:
    """The file, if its times are right too. Raises InvalidInput."""
    problems, calendar = list(file.problems), Calendar()
    for one in file.schedules:
        try:
            calendar.check(one.rule.starting(0))
        except InvalidInput as error:
            problems += [FieldError(f"{one.id}.{each.field}", each.problem) for each in error.problems]
    if problems:
        raise InvalidInput(problems)
    return file


def compared(api: ApiClient, file: ScheduleFile) -> Document:
    """A file beside what a ledger has: `added`, `changed`, `deleted` and `left_alone`, each by queue, tenant and id.

    `applied` is the number that was applied last, null where the place does not say.
    """
    noted = api.schedule_file_state()
    wanted = {key_of(one): one for one in file.schedules}
    stored = dict(_stored_schedules(api, _queues_and_tenants(api, wanted, noted)))
    changes = {
        key: _changes(one, stored[key]) for key, one in wanted.items() if key in stored and stored[key].get("file")
    }
    gone = [key for key, one in stored.items() if one.get("file") and key not in wanted]
    return {
        "number": file.number,
        "applied": noted.begun if noted else None,
        "added": [_key_fields(key) for key in wanted if key not in stored],
        "changed": [{**_key_fields(key), "fields": found} for key, found in changes.items() if found],
        "deleted": [_key_fields(key) for key in sorted(gone)],
        "left_alone": [_key_fields(key) for key in wanted if key in stored and not stored[key].get("file")],
    }


def _queues_and_tenants(api: ApiClient, wanted: Iterable[Entry], noted: FileState | None) -> set[tuple[str, str]]:
    """Queues and tenants in which schedules of a file may be."""
    if noted:
        return {(one.queue, one.tenant) for one in (*wanted, *noted.entries)}
    queues, tenants = {one.queue for one in wanted}, {DEFAULT_TENANT, *(one.tenant for one in wanted)}
    try:
        queues |= {one["queue"] for one in every_queue(api)}
    except RequestRejected as error:  # only an operator sees every queue
        if error.status != FORBIDDEN:
            raise
    return set(product(queues, tenants))


def _stored_schedules(api: ApiClient, places: Iterable[tuple[str, str]]) -> Iterator[tuple[Entry, Document]]:
    """The schedules that a ledger has in some places."""
    for queue, tenant in sorted(places):
        after: str | None = ""
        while after is not None:
            query = {"queue": queue, "after": after or None, "limit": str(PAGE)}
            page = api.request("GET", "/schedules", query | {"tenant": None if tenant == DEFAULT_TENANT else tenant})
            for one in page["schedules"]:
                yield Entry(queue, tenant, one["id"]), one
            after = page.get("next_after")


def _changes(wanted: Schedule, stored: Mapping[str, Any]) -> Document:
    """Fields that a file changes of a schedule."""
    from duecourse.schedules.http import show_schedule

    whole = replace(wanted, deadline_ms=wanted.deadline_ms or DEADLINES_MS.get(wanted.kind))
    view: Mapping[str, Any] = show_schedule(ScheduleStatus(whole, Progress(), 0, (), (), ""))
    names = [name for name in COMPARED if name != "starts_at" or wanted.rule.starts_at != AT_ADD]
    found = {name for name in names if stored.get(name) != view.get(name)}
    again = wanted.rule.as_stored(replace(wanted.rule, gap=Gap(stored["gap"]), fold=Fold(stored["fold"])))
    if found <= {"gap", "fold"} and (again.gap, again.fold) == (stored["gap"], stored["fold"]):
        return {}  # the schedule is as the file says, but for what an earlier release had in place of `auto`
    return {name: {"from": stored.get(name), "to": view.get(name)} for name in names if name in found}


def _key_fields(key: Entry) -> Document:
    tenant = {} if key.tenant == DEFAULT_TENANT else {"tenant": key.tenant}
    return {"queue": key.queue, **tenant, "id": key.id}


def _show(found: Document) -> None:
    lines = [
        *(f"+ {_named(one)}" for one in found["added"]),
        *(f"~ {_named(one)}: {_fields(one['fields'])}" for one in found["changed"]),
        *(f"- {_named(one)}" for one in found["deleted"]),
        *(f"= {_named(one)}: no file made it, it is left alone" for one in found["left_alone"]),
    ]
    for line in lines or ["no change"]:
        console.print_line(line)
    if found["applied"] is not None and found["number"] <= found["applied"]:
        console.notice(
            f"A deployment changes nothing: number {found['applied']} was applied already. Raise `number` above it."
        )


def _named(one: Document) -> str:
    tenant = f", tenant {one['tenant']}" if "tenant" in one else ""
    return f"{one['id']} (queue {one['queue']}{tenant})"


def _fields(changes: Mapping[str, Mapping[str, Any]]) -> str:
    return "; ".join(
        f"{name} {formatting.text_of(one['from']) or 'none'} → {formatting.text_of(one['to']) or 'none'}"
        for name, one in changes.items()
    )
