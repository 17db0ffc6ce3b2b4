"""Kinds that a caller may ask for: those of the own targets, or those that deployments wrote into the ledger."""

import re
from collections.abc import Callable, Collection
from typing import NoReturn, Protocol

from duecourse.domain.times import format_instant
from duecourse.engine.deployed import Reading
from duecourse.errors import FieldError, InvalidInput

OWN_KIND = (
    "For a kind of your own, run `duecourse new {new}` in its project, or name its target in DUECOURSE_TARGETS: here, "
    """and where the functions are. For a worker on a laptop: DUECOURSE_TARGETS='{{"{kind}": "worker"}}' duecourse up"""
)
FUNCTION = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
"""A name that `duecourse new` takes."""
LISTED = 50
"""Maximum number of kinds that an error names."""
NO_DEPLOYMENT = "no deployment has written its kinds"
NO_KINDS_YET = (
    "Start a worker that has this kind, point DUECOURSE_STORE and DUECOURSE_NAMESPACE at your deployment, "
    "or name a target in DUECOURSE_TARGETS"
)


class Kinds(Protocol):
    """Rule of the kinds that a caller may ask for; `shown` allows an error to name the store's address."""

    def check(self, kind: str, *, shown: bool) -> None:
        """Return if something runs tasks of this kind. Raises InvalidInput."""

    def check_receiver(self, kind: str, *, shown: bool) -> None:
        """Return if the kind has a target, which may receive completion notifications. Raises InvalidInput."""


class OwnKinds:
    """Kinds of this process's own settings: `every` that is known, and those `handed` to a target."""

    def __init__(self, every: Collection[str], handed: Collection[str] = ()) -> None:
        self._every = every
        self._handed = handed

    def check(self, kind: str, *, shown: bool) -> None:
        """See Kinds."""
        del shown
        if kind not in self._every:
            _reject("kind", f"no target here runs {kind}; known kinds: {_listed(self._every)}. {_fix(kind)}")

    def check_receiver(self, kind: str, *, shown: bool) -> None:
        """See Kinds."""
        del shown
        if kind not in self._handed:
            known = _listed(self._handed)
            _reject("notify_done.target", f"must be a kind that DUECOURSE_TARGETS hands to a target; known: {known}")


class LedgerKinds:
    """Kinds that every deployment has, and those that the ledger knows; `place` answers where that is, for errors."""

    def __init__(self, always: Collection[str], record: Reading, place: Callable[[], str]) -> None:
        self._always = always
        self._record = record
        self._place = place

    def check(self, kind: str, *, shown: bool) -> None:
        """See Kinds. Raises StoreUnavailable too."""
        if kind in self._always or self._record.has(lambda known: kind in known.kinds):
            return
        known = _listed({*self._always, *self._record.newest.kinds})
        _reject("kind", f"nothing runs {kind}; known kinds: {known}, from {self._source(shown)}. {self._hint()}")

    def check_receiver(self, kind: str, *, shown: bool) -> None:
        """See Kinds. Raises StoreUnavailable too."""
        if self._record.has(lambda known: kind in known.handed):
            return
        known = f"{_listed(self._record.newest.handed)}, from {self._source(shown)}"
        _reject("notify_done.target", f"must be a kind that a deployment hands to a target; known: {known}")

    def _source(self, shown: bool) -> str:
        where = f" {self._place()}" if shown else ""
        at = self._record.newest.written_at
        when = f"written at {format_instant(at)}" if at else f"where {NO_DEPLOYMENT}"
        return f"the ledger{where}, {when}"

    def _hint(self) -> str:
        if self._record.newest.written_at:
            return "Start a worker or deploy a function that has this kind, or look for a slip in its name"
        return NO_KINDS_YET


def _fix(kind: str) -> str:
    """Ways to a kind of one's own that nothing runs yet."""
    return OWN_KIND.format(new=kind if FUNCTION.fullmatch(kind) else f"NAME --kind {kind}", kind=kind)


def _listed(kinds: Collection[str]) -> str:
    more = len(kinds) - LISTED
    listed = ", ".join(sorted(kinds)[:LISTED]) or "none"
    return f"{listed} and {more} more" if more > 0 else listed


def _reject(field: str, problem: str) -> NoReturn:
    raise InvalidInput([FieldError(field, problem)])
