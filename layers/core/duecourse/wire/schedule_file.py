"""The file `schedules.yaml` of a deployment: a number, and schedules as POST /schedules takes them."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from duecourse.domain.schedule import Schedule
from duecourse.domain.schedule_file import ScheduleFile, key_of
from duecourse.domain.task import DEFAULT_TENANT
from duecourse.domain.values import replaced
from duecourse.errors import FieldError, InvalidInput
from duecourse.wire.http.fields import Name, Strict, read
from duecourse.wire.http.schedules import AddSchedule

MAX_SCHEDULES = 10_000


class FiledSchedule(AddSchedule):
    """One schedule of a file: a request of POST /schedules with an id, and a tenant."""

    id: Name
    tenant: Name = DEFAULT_TENANT


class File(Strict):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    number: Annotated[int, Field(ge=1, le=999_999_999, strict=True)]
    schedules: Annotated[list[FiledSchedule], Field(max_length=MAX_SCHEDULES)]


def parse_file(text: str) -> ScheduleFile:
    """The file that a YAML text holds. Raises InvalidInput, which names every wrong field."""
    import yaml

    try:
        value: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput([FieldError("file", f"is no YAML: {error}")]) from None
    file = read(File, value)
    found: dict[Any, Schedule] = {}
    for index, one in enumerate(file.schedules):
        schedule = replaced(one.schedule(one.tenant), file=file.number)
        if key_of(schedule) in found:
            raise InvalidInput([FieldError(f"schedules.{index}.id", "is twice in this file")])
        found[key_of(schedule)] = schedule
    return ScheduleFile(file.number, tuple(found.values()))
