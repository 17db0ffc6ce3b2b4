"""Settings of a whole queue as fields of each of its shards' meta."""

from collections.abc import Sequence
from typing import Any

from duecourse.domain.queues import SETTINGS, QueueSettings, Rate, Setting


def _fields_of(one: Setting) -> list[str]:
    return [f"{one.name}_count", f"{one.name}_per"] if one.kind is Rate else [one.name]


FIELDS = {field: one.field for one in SETTINGS for field in _fields_of(one)}
"""Fields of meta, each with the setting that it is part of."""


def as_fields(asked: QueueSettings) -> dict[str, str | int]:
    """The settings as meta keeps them, "" for a default."""
    values = [value for one in SETTINGS for value in _written(one, getattr(asked, one.field))]
    return dict(zip(FIELDS, values, strict=True))


def _written(one: Setting, value: Any) -> Sequence[str | int]:
    if value == one.default:
        return [""] * len(_fields_of(one))
    return [value.most, value.per_ms] if isinstance(value, Rate) else [int(value)]


def settings_of(found: Sequence[bytes | None]) -> QueueSettings:
    """The settings by the values of FIELDS."""
    values = dict(zip(FIELDS, found, strict=True))
    return QueueSettings(**{one.field: _read(one, [values[field] for field in _fields_of(one)]) for one in SETTINGS})


def _read(one: Setting, found: Sequence[bytes | None]) -> Any:
    if one.kind is bool:
        return bool(found[0])  # of any value: scripts ask no more than that
    numbers = [int(value) for value in found if value and value.isdigit()]
    if len(numbers) < len(found):
        return one.default
    if one.kind is Rate:
        return Rate(*numbers) if all(numbers) else None
    return numbers[0]
