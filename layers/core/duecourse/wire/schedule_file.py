"""The file `schedules.yaml` of a deployment: a number, and schedules as POST /schedules takes them."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from duecourse.domain.schedule import Schedule
from duecourse.domain.schedule_file import Entry, ScheduleFile, key_of
from duecourse.domain.task import DEFAULT_TENANT
from duecourse.domain.values import replaced
from duecourse.errors import FieldError, InvalidInput
from duecourse.wire.http.fields import Name, Strict, read
from duecourse.wire.http.schedules import AddSchedule

NAME = "schedules.yaml"
MAX_SCHEDULES = 10_000


class FiledSchedule(AddSchedule):
    """One schedule of a file: a request of POST /schedules with an id, and a tenant."""

    id: Name
    tenant: Name = DEFAULT_TENANT


class File(Strict):
    """The whole file; each of its schedules is read by itself."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    number: Annotated[int, Field(ge=1, le=999_999_999, strict=True)]
    schedules: Annotated[list[Any], Field(max_length=MAX_SCHEDULES)]


def parse_file(text: str) -> ScheduleFile:
    """The file that a YAML text holds, with the problems of what is wrong within its schedules.

    Raises InvalidInput where it is no such file at all.
    """
    file = read(File, _value(text))
    found: dict[Entry, Schedule] = {}
    problems: list[FieldError] = []
    for place, one in enumerate(file.schedules):
        try:
            schedule = _schedule(one, file.number)
            if key_of(schedule) in found:
                raise InvalidInput([FieldError("id", "is there twice in this file")])  # noqa: TRY301 - one of its problems
            found[key_of(schedule)] = schedule
        except InvalidInput as error:
            problems += [FieldError(f"{_name(one, place)}.{each.field}", each.problem) for each in error.problems]
    digest = blake2b(text.encode(), digest_size=8).hexdigest()
    return ScheduleFile(file.number, tuple(found.values()), tuple(problems), digest)


def _value(text: str) -> Any:
    """The value of a YAML text. The parser takes a while to load: nobody else reads YAML here."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - both are safe loaders
    except yaml.YAMLError as error:
        raise InvalidInput([FieldError("file", f"is no YAML: {' '.join(str(error).split())}")]) from None
    except RecursionError:
        raise InvalidInput([FieldError("file", "nests too deep")]) from None


def _schedule(value: Any, number: int) -> Schedule:
    asked = read(FiledSchedule, value)
    return replaced(asked.schedule(asked.tenant), file=number)


def _name(value: Any, place: int) -> str:
    """Name of a schedule in a problem: its id, or else its place in the file."""
    id = value.get("id") if isinstance(value, Mapping) else None
    return id if isinstance(id, str) and id else f"schedules.{place}"
