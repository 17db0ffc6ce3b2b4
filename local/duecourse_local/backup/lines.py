"""Lines of an export, each a JSON object with one member: head, queues, seal keys, schedule files, tasks, end."""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Base64Bytes, Field, StrictInt, StrictStr

from duecourse.adapters.redis.record import UNREADABLE, unpack
from duecourse.domain.shards import MAX_SHARDS
from duecourse.domain.task import NAME_PATTERN, Task
from duecourse.errors import FieldError, InvalidInput
from duecourse.wire.http.fields import Strict, matching, read
from duecourse.wire.http.queues import SetQueue

FORMAT = 1

Name = Annotated[StrictStr, matching(NAME_PATTERN, "must be the name of a queue")]


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

    id: StrictStr
    wrapped: Base64Bytes
    seals: bool


class FileLine(Strict):
    """State of the files of schedules: the highest number, and the schedules that files made."""

    number: Annotated[StrictInt, Field(ge=1)]
    digest: StrictStr
    applied: bool
    entries: list[tuple[StrictStr, StrictStr, StrictStr]]
    """Queue, tenant and id of each."""


class TaskLine(Strict):
    """A task: `record` and `payload` are what is restored, `shown` is for readers.

    `when` is its due time or its end, in epoch milliseconds. `payload` is absent if it is inside the record.
    """

    queue: Name
    id: StrictStr
    """The id under which the ledger keeps it: tenant, slash, id."""
    when: StrictInt
    record: Base64Bytes
    payload: Base64Bytes = b""
    shown: Any = None

    def task(self) -> Task:
        """The task in the record. Raises ValueError."""
        try:
            return unpack(self.queue, self.id, self.record, body=self.payload or None)
        except UNREADABLE as error:
            raise ValueError(f"the record cannot be read: {error}") from error


def _is_readable(line: TaskLine) -> TaskLine:
    line.task()
    return line


class End(Strict):
    """Last line: an export without it was cut off."""

    tasks: StrictInt


class Line(Strict):
    """One line: one of its members is given."""

    export: Head | None = None
    queue: QueueLine | None = None
    key: KeyLine | None = None
    file: FileLine | None = None
    task: Annotated[TaskLine, AfterValidator(_is_readable)] | None = None
    end: End | None = None


Given = Head | QueueLine | KeyLine | FileLine | TaskLine | End


def parse(number: int, text: str) -> Given:
    """The one member of a line. Raises InvalidInput, naming the line by its number."""
    try:
        line = read(Line, json.loads(text))
        given: Given
        [given] = (value for _, value in line if value is not None)
    except InvalidInput as error:
        raise InvalidInput(
            [FieldError(f"line {number}, {one.field}", one.problem) for one in error.problems]
        ) from error
    except ValueError:
        raise InvalidInput([FieldError(f"line {number}", "is not a line of an export")]) from None
    return given
