"""DUECOURSE_TENANT_QUOTAS, read without pydantic: the quotas of each tenant by name, and with `-` of all others."""

from collections.abc import Callable

from duecourse.domain.near import near_name
from duecourse.domain.queues import QueueSettings
from duecourse.domain.quotas import OTHERS, Quotas
from duecourse.domain.task import Json
from duecourse.errors import FieldError, InvalidInput
from duecourse.wire.settings.variables import number, problems_at, table_of

EXAMPLE = '{"-": {"tenant_max_pending": 10000}, "acme": {"tenant_max_pending": 100000, "tenant_max_bytes": null}}'


def read_quotas(value: Json) -> dict[str, Quotas]:
    """The table. Raises ValueError, or InvalidInput that names what is wrong; a tenant has what it lacks of `-`."""
    tables = table_of(_read_fields)(value)
    others = tables.get(OTHERS, {})
    return {tenant: Quotas(**{**others, **fields}) for tenant, fields in tables.items()}


def _read_fields(value: Json) -> dict[str, int | None]:
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")  # noqa: TRY004 - a wrong value, to its reader
    found, problems = dict[str, int | None](), list[FieldError]()
    for name, one in value.items():
        try:
            found[name] = _reader(name)(one)
        except ValueError as error:
            problems += problems_at(name, error)
    if problems:
        raise InvalidInput(problems)
    return found


def _reader(name: str) -> Callable[[Json], int | None]:
    if name not in Quotas._fields:
        raise ValueError(f"must be one of {', '.join(Quotas._fields)}{near_name(name, Quotas._fields)}")
    [about] = QueueSettings.__annotations__[name].__metadata__
    read = number(about.low, about.high)
    return lambda value: None if value is None else read(value)
