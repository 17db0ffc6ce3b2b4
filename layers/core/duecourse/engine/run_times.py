"""Usual time of a run by kind, as this process has seen it."""

MOST_KINDS = 64
"""Kinds that are remembered; those of one function are few."""
FALL = 8
"""Part by which a time falls towards a shorter run."""


class RunTimes:
    """Usual times of runs in ms: each grows at once to that of a longer run, and falls slowly after shorter ones."""

    def __init__(self) -> None:
        self._ms: dict[str, float] = {}

    def note(self, kind: str, ms: float) -> None:
        """Note that a run of this kind took so long."""
        known = self._ms.pop(kind, 0.0)
        self._ms[kind] = max(ms, known + (ms - known) / FALL)
        if len(self._ms) > MOST_KINDS:
            del self._ms[next(iter(self._ms))]

    def of(self, kind: str) -> float:
        """Usual time of a run of this kind, 0 where none is known."""
        return self._ms.get(kind, 0.0)

    @property
    def longest(self) -> float | None:
        """Usual time of the slowest kind; None where none is known."""
        return max(self._ms.values(), default=None)
