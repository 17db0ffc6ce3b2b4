"""Lines of an export, each a JSON object with one member: a head, what a ledger has, tasks, an end."""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Base64Bytes, Field, StrictInt, StrictStr

from duecourse.api.fields import Strict, matching, read
from duecourse.base.ids import ANY_ID_PATTERN, NAME_PATTERN
from duecourse.base.times import MAX_INSTANT
from duecourse.errors import FieldError, InvalidInput, TaskDamaged
from duecourse.ledger.operations.namespace_records import CURRENT
from duecourse.ledger.queue_history import FIELDS, unpack_history
from duecourse.ledger.record import UNREADABLE, unpack, unpack_schedule
from duecourse.ledger.schedule import TENANT as SCHEDULES
from duecourse.ledger.sharding import MAX_SHARDS
from duecourse.ledger.task import Task
from duecourse.queues.http import SetQueue
from duecourse.tasks.http import show_task

FORMAT = 1
MAX_LINE = 16 * 1024 * 1024
"""Characters of the longest line: a task's record and payload, and both again as `shown`."""
MAX_NUMBER = 2**53
"""Highest number of a file of schedules."""
MAX_WRAPPED = 8_192
"""Bytes of the longest data key as KMS encrypts one."""
OWN_ID = ANY_ID_PATTERN.strip("^$")
STORED_ID = rf"({re.escape(SCHEDULES)}/)?{NAME_PATTERN.strip('^$')}/{OWN_ID}"
"""The id under which the ledger keeps a task: tenant, slash, id; of a schedule behind a tenant of its own."""
KEY_ID = rf"(?!{CURRENT}$)[A-Za-z0-9._:@-]{{1,64}}"

Name = Annotated[StrictStr, matching(NAME_PATTERN, "must be the name of a queue")]
Tenant = Annotated[StrictStr, matching(NAME_PATTERN, "must be the name of a tenant")]
Id = Annotated[StrictStr, matching(OWN_ID, "must be the id of a schedule")]
Instant = Annotated[StrictInt, Field(ge=0, le=MAX_INSTANT)]


class Head(Strict):
    """First line: the format, and the program and the ledger that it is from."""

    format: Literal[1]
    by: StrictStr
    namespace: StrictStr
    at: StrictStr


class QueueLine(Strict):
    """A queue: its number of shards, and the settings that are not the default."""

    name: Name
    shards: Annotated[StrictInt, Field(ge=1, le=MAX_SHARDS)]
    settings: SetQueue


class KeyLine(Strict):
    """A data key of seals, as the wrapping key encrypted it; `seals` marks the one that seals new tasks."""

    id: Annotated[StrictStr, matching(KEY_ID, "must be the id of a data key")]
    wrapped: Annotated[Base64Bytes, Field(min_length=1, max_length=MAX_WRAPPED)]
    seals: bool


class FileLine(Strict):
    """State of the files of schedules: the highest number, and the schedules that files made."""

    number: Annotated[StrictInt, Field(ge=1, le=MAX_NUMBER)]
    digest: Annotated[StrictStr, matching(r"[A-Za-z0-9]{0,128}", "must be a digest")]
    applied: bool
    entries: list[tuple[Name, Tenant, Id]]
    """Queue, tenant and id of each."""


class TaskLine(Strict):
    """A task: `record` and `payload` are what is restored, `shown` is for readers.

    `when` is its due time or its end, in epoch milliseconds. `payload` is absent if it is inside the record.
    """

    queue: Name
    id: Annotated[StrictStr, matching(STORED_ID, "must be a tenant, a slash and an id")]
    """The id under which the ledger keeps it: tenant, slash, id."""
    when: Instant
    record: Base64Bytes
    payload: Base64Bytes = b""
    shown: Any = None

    def task(self) -> Task:
        """The task in the record. Raises ValueError."""
        try:
            return unpack(self.queue, self.id, self.record, body=self.payload or None)
        except UNREADABLE as error:
            raise ValueError(f"the record cannot be read: {error}") from error


class HistoryLine(Strict):
    """Numbers of a shard over time, as it keeps them (ledger/queue_history.py)."""

    queue: Name
    shard: Annotated[StrictInt, Field(ge=0, lt=MAX_SHARDS)]
    minutes: Base64Bytes = b""
    hours: Base64Bytes = b""
    days: Base64Bytes = b""
    numbers: Base64Bytes = b""

    @property
    def lines(self) -> dict[str, bytes]:
        """Lines by the fields of the key, as far as there are any."""
        return {name: text for name in FIELDS if (text := getattr(self, name))}


def _is_history(line: HistoryLine) -> HistoryLine:
    """The line, if it can be read. Raises ValueError."""
    unpack_history([line.lines.get(name) for name in FIELDS], line.numbers)
    return line


def _is_readable(line: TaskLine) -> TaskLine:
    """The line, if the ledger can show its task. Raises ValueError."""
    task = line.task()
    for name in ("due_at", "created_at", "deadline_at", "claimed_at"):
        if not 0 <= getattr(task, name) <= MAX_INSTANT:
            raise ValueError(f"the record cannot be read: {name} must be 0 to {MAX_INSTANT}")
    try:
        unpack_schedule(task) if task.tenant == SCHEDULES else show_task(task)
    except (*UNREADABLE, OverflowError, TaskDamaged) as error:
        raise ValueError(f"the record cannot be read: {error}") from error
    return line


class End(Strict):
    """Last line: an export without it was cut off."""

    tasks: Annotated[StrictInt, Field(ge=0)]


class Line(Strict):
    """One line: one of its members is given."""

    export: Head | None = None
    queue: QueueLine | None = None
    key: KeyLine | None = None
    file: FileLine | None = None
    history: Annotated[HistoryLine, AfterValidator(_is_history)] | None = None
    task: Annotated[TaskLine, AfterValidator(_is_readable)] | None = None
    end: End | None = None


Given = Head | QueueLine | KeyLine | FileLine | HistoryLine | TaskLine | End


def parse(number: int, text: str) -> Given:
    """The one member of a line. Raises InvalidInput, naming the line by its number."""
    if len(text) > MAX_LINE:
        raise wrong(number, f"is longer than {MAX_LINE:,} characters")
    try:
        line = read(Line, json.loads(text))
        given: Given
        [given] = (value for _, value in line if value is not None)
    except InvalidInput as error:
        raise InvalidInput(
            [FieldError(f"line {number}, {one.field}", one.problem) for one in error.problems]
        ) from error
    except (ValueError, RecursionError):
        raise wrong(number, "is not a line of an export") from None
    return given


def wrong(number: int, problem: str) -> InvalidInput:
    """The error of a whole line."""
    return InvalidInput([FieldError(f"line {number}", problem)])
