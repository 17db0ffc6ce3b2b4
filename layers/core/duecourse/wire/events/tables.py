"""Objects of an event, read field by field without pydantic; what is wrong is noted, so that all of it is named."""

from collections.abc import Collection
from typing import Any, TypeVar

from duecourse.domain.near import unknown_field
from duecourse.domain.task import Json
from duecourse.errors import FieldError, InvalidInput, bounded

T = TypeVar("T", str, list[Any])

LAST_AT = 10**13 - 1
"""The last instant (epoch ms) that has thirteen digits, in the year 2286."""


class Table:
    """One object, at `path` of its event; the tables within it note what is wrong in the same list.

    A wrong field reads as nothing: `end` raises before anybody uses it.
    """

    def __init__(self, value: Json, path: str = "", wrong: list[FieldError] | None = None) -> None:
        self._fields: dict[str, Any] | None = value if isinstance(value, dict) else None
        self._path = path
        self._wrong = [] if wrong is None else wrong
        if self._fields is None:
            self._wrong.append(FieldError(path.removesuffix(".") or "body", "must be a JSON object"))

    def note(self, field: str, problem: str) -> None:
        """Note that a field is wrong."""
        self._wrong.append(FieldError(f"{self._path}{field}", problem))

    def has(self, field: str) -> bool:
        """True if a field is there, and not null."""
        return self._fields is not None and self._fields.get(field) is not None

    def text(self, field: str, most: int | None = None) -> str:
        """A field that is text, of so many characters at most."""
        return self._sized(field, str, "must be text", most, "characters")

    def one_of(self, field: str, words: Collection[str]) -> str:
        """A field that is one of these words."""
        value = self._take(field)
        if value in words and isinstance(value, str):
            return value
        if value is not None:
            self.note(field, f"must be {' or '.join(repr(str(word)) for word in words)}")
        return ""

    def instant(self, field: str) -> int:
        """A field that is an instant (epoch ms)."""
        value = self._take(field)
        if type(value) is int and 0 <= value <= LAST_AT:
            return value
        if value is not None:
            self.note(field, f"must be a whole number, 0 to {LAST_AT}")
        return 0

    def each(self, field: str, most: int | None = None) -> list[Any]:
        """A field that is a list, of so many items at most."""
        return self._sized(field, list, "must be a valid list", most, "items")

    def tables(self, field: str) -> list["Table"]:
        """A field that is a list of objects."""
        return [Table(one, f"{self._path}{field}.{at}.", self._wrong) for at, one in enumerate(self.each(field))]

    def only(self, *fields: str) -> None:
        """Note every field that is not one of these."""
        for field in self._fields or ():
            if field not in fields:
                self.note(field, unknown_field(field, fields))

    def end(self) -> None:
        """Raise InvalidInput, naming every wrong field, where one was noted."""
        if self._wrong:
            raise InvalidInput(bounded(self._wrong))

    def _sized(self, field: str, kind: type[T], problem: str, most: int | None, unit: str) -> T:
        value = self._take(field)
        if value is not None and not isinstance(value, kind):
            self.note(field, problem)
        elif value and most and len(value) > most:
            self.note(field, f"must have at most {most} {unit}")
        else:
            return value or kind()
        return kind()

    def _take(self, field: str) -> Any:
        if self._fields is not None and self._fields.get(field) is None:
            self.note(field, "is required")
        return None if self._fields is None else self._fields.get(field)
