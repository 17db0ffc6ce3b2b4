"""Cost of the searches of one answer: steps, the size of what they make, time; and what costs by the size of values."""

from collections.abc import Iterator, Sized

from duecourse.domain.task import Json
from duecourse.turns import Computation, OutOfTime

MAX_STEPS = 500_000
"""Nodes applied to a value, elements projected and values compared, in all searches of one answer together."""
MAX_MADE = 8 * 1024 * 1024
"""Maximum size of all values that one search makes, in bytes: a character is one, each place of a list PLACE."""
PLACE = 8
CONTAINER = 3
"""Steps that one list or object takes besides what is in it."""
BETWEEN_LOOKS = 1_024
"""Steps between two looks at the clock."""
AT_ONCE = 16
"""Elements that Python goes over by itself in the time of one step."""
ALIKE = 1_024
"""Characters that Python compares in the time of one step."""
ESCAPED = 6
"""Characters of JSON text that one character takes which is not printable ASCII."""
SPELLED = 32_768
"""Square of the number of digits that Python spells out in the time of one step: it takes the square of their time."""


def size_of(value: Json) -> int:
    """Size of JSON text for a text or a whole number, at most; 0 for any other value, whose size is bounded."""
    if isinstance(value, str):
        return len(value) * (1 if value.isascii() and value.isprintable() else ESCAPED)
    return value.bit_length() // 3 if isinstance(value, int) else 0


class TooMuchWork(Exception):
    """The expression asks for more work than one answer is worth."""


class TooMuchMade(TooMuchWork):
    """The expression makes too much of the answer."""


class DoesNotFit(Exception):
    """The expression cannot be applied to this answer; to another it may."""


class Meter:
    """Work that the searches of one answer may still cost."""

    def __init__(self, computation: Computation) -> None:
        self._computation = computation
        self._steps = MAX_STEPS
        self._look_at = MAX_STEPS
        self._left = MAX_MADE

    def begin(self) -> None:
        """Begin another search, with what the ones before it left of steps and time."""
        self._left = MAX_MADE

    def spend(self, steps: int) -> None:
        """Count steps, and look at the clock now and then. Raises TooMuchWork."""
        self._steps -= steps
        if self._steps > self._look_at:
            return
        self._look_at = self._steps - BETWEEN_LOOKS
        if self._steps < 0:
            raise TooMuchWork(f"it takes more than {MAX_STEPS:,} steps for this answer: narrow it")
        try:
            self._computation.look()
        except OutOfTime as error:
            raise TooMuchWork(f"{error} for this answer: narrow it") from None

    def go_over(self, *sizes: Sized) -> None:
        """Count that Python goes over all elements or characters, in its own quick way."""
        self.spend(sum(map(len, sizes)) // AT_ONCE)

    def make(self, weight: int) -> None:
        """Count the size of a value, before it is made where that is known. Raises TooMuchMade."""
        self._left -= weight
        if self._left < 0:
            raise TooMuchMade(f"it makes more than {MAX_MADE // 1024 // 1024} MiB of the answer")

    def compare(self, items: list[Json], times: int) -> None:
        """Count that Python compares each of the numbers or texts so many times."""
        self.spend(len(items) * times // (2 * AT_ONCE))
        if items and isinstance(items[0], str):
            # A list may hold one long text many times, and each comparison goes over it.
            self.spend(sum(map(len, items)) * times // ALIKE)

    def weigh(self, value: Json) -> int:
        """Size of a value as a text, about; each value within is a step, and each list or object a few."""
        weight, waiting = 0, [value]
        while waiting and weight <= MAX_MADE:
            item = waiting.pop()
            within = [*item, *item.values()] if isinstance(item, dict) else item if isinstance(item, list) else ()
            # Counted before they are gone over: one list may be within this value a million times.
            self.spend(CONTAINER + len(within))
            size = size_of(item)
            if isinstance(item, int):
                self.spend(size * size // SPELLED)
            weight += PLACE * len(within) + size
            waiting.extend(within)
        return weight

    def same(self, one: Json, other: Json) -> bool:
        """True if two values are equal as JSON: a number is no boolean, at any depth; each compared pair is a step."""
        waiting: list[Iterator[tuple[Json, Json]]] = [iter(((one, other),))]
        while waiting:
            for left, right in waiting[-1]:
                if isinstance(left, list | dict):
                    inside = self._inside(left, right)
                    if inside is None:
                        return False
                    waiting.append(inside)
                    break
                if not self.alike(left, right):
                    return False
            else:
                waiting.pop()
        return True

    def alike(self, left: Json, right: Json) -> bool:
        """True if two values are equal and neither a list nor an object."""
        if isinstance(left, str) and isinstance(right, str) and len(left) == len(right):
            self.spend(len(left) // ALIKE)
        return bool(left == right) and isinstance(left, bool) is isinstance(right, bool)

    def _inside(self, left: Json, right: Json) -> Iterator[tuple[Json, Json]] | None:
        """Pairs within two lists of one length, or two objects of the same keys; None for others, which differ."""
        if type(left) is not type(right) or len(left) != len(right):
            return None
        self.spend(CONTAINER + len(left))
        if isinstance(left, list):
            return zip(left, right, strict=True)
        return zip(left.values(), map(right.__getitem__, left), strict=True) if left.keys() == right.keys() else None
