"""Kinds that a caller may ask for, and the calls that a task makes: checked before the ledger has the task."""

import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeAlias

from duecourse.base.json_text import Json
from duecourse.base.times import format_duration, format_instant, parse_duration
from duecourse.errors import FieldError, InvalidInput
from duecourse.ledger.api_query import KIND as POLL
from duecourse.ledger.api_query import MAX_DEADLINE_MS
from duecourse.ledger.operation_types import Deployed
from duecourse.ledger.task import NewTask, Notify, is_url

if TYPE_CHECKING:
    from duecourse.ledger.operations.namespace_records import Deployments

# Reading of the record that deployments keep in the ledger, for a program that knows the store alone.

TRUSTED_S = 60.0
"""Time for which one reading is trusted."""
SETTLED_S = 1.0
"""Age from which the record is read again before something counts as missing: a deployment may be new."""


class DeploymentReader:
    """Deployments as the ledger records them, cached for a minute; `newest` is the last record read."""

    def __init__(self, record: Callable[[], "Deployments"]) -> None:
        self._record = record
        self._read_at = float("-inf")
        self.newest = Deployed()

    def has(self, has: Callable[[Deployed], bool]) -> bool:
        """True if the record has something. Raises StoreUnavailable."""
        return has(self._younger_than(TRUSTED_S)) or has(self._younger_than(SETTLED_S))

    def results(self) -> str:
        """Place of the results table, "" for none. Raises StoreUnavailable."""
        return self._younger_than(TRUSTED_S).results

    def _younger_than(self, age_s: float) -> Deployed:
        now = time.monotonic()
        if now - self._read_at > age_s:
            self.newest, self._read_at = self._record().read(), now
        return self.newest


# Kinds that a caller may ask for: those of the own targets, or those that deployments wrote into the ledger.

OWN_KIND = (
    "For a kind of your own, run `duecourse new {new}` in its project, or name its target in DUECOURSE_TARGETS: here, "
    """and where the functions are. For a worker on a laptop: DUECOURSE_TARGETS='{{"{kind}": "worker"}}' duecourse up"""
)
FUNCTION = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
"""A name that `duecourse new` takes."""
MAX_LISTED = 50
"""Maximum number of kinds that an error names."""
NO_DEPLOYMENT = "no deployment has written its kinds"
NO_KINDS_YET = (
    "Start a worker that has this kind, point DUECOURSE_STORE and DUECOURSE_NAMESPACE at your deployment, "
    "or name a target in DUECOURSE_TARGETS"
)


class Kinds(Protocol):
    """Kinds that a caller may add; with `shown`, an error may name the store's address."""

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

    def __init__(self, always: Collection[str], record: DeploymentReader, place: Callable[[], str]) -> None:
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
    """Hint how to run a kind of one's own that nothing runs yet."""
    return OWN_KIND.format(new=kind if FUNCTION.fullmatch(kind) else f"NAME --kind {kind}", kind=kind)


def _listed(kinds: Collection[str]) -> str:
    more = len(kinds) - MAX_LISTED
    listed = ", ".join(sorted(kinds)[:MAX_LISTED]) or "none"
    return f"{listed} and {more} more" if more > 0 else listed


def _reject(field: str, problem: str) -> NoReturn:
    raise InvalidInput([FieldError(field, problem)])


# Calls that a task makes: where they go, as far as nothing is looked up, and how often and how long a poll asks.

UrlPolicy: TypeAlias = Callable[[str, Mapping[str, str]], str]
"""Reason why no call with these headers may go to this URL, or ""."""
NumberPolicy: TypeAlias = Callable[[str], str]
"""Reason why no SMS may go to this number, or ""."""
URL_KINDS = frozenset({"poll", "webhook"})
"""Kinds whose payload names a URL."""


def check_calls(task: NewTask, url_policy: UrlPolicy, least_ms: int, now: Callable[[], int]) -> None:
    """Return if calls may go where the task's payload and its notification say.

    A poll may ask each `least_ms`, and for a year at most. Raises InvalidInput, with every wrong field.
    """
    makes_calls = task.kind in URL_KINDS or task.notify
    if makes_calls and (problems := list(_call_problems(task, url_policy, least_ms, now))):
        raise InvalidInput(problems)


def check_interval(field: str, payload: Json, least_ms: int) -> None:
    """Return if a poll's payload asks no more often than each `least_ms`. Raises InvalidInput, naming the field."""
    if problem := _too_often(payload, least_ms):
        raise InvalidInput([FieldError(field, problem)])


def check_url(field: str, url: str, headers: Mapping[str, str], url_policy: UrlPolicy) -> None:
    """Return if a call may go to this URL. Raises InvalidInput, naming the field."""
    if problem := url_policy(url, headers):
        raise InvalidInput([FieldError(field, problem)])


def check_number(field: str, number: str, number_policy: NumberPolicy) -> None:
    """Return if an SMS may go to this number. Raises InvalidInput, naming the field."""
    if problem := number_policy(number):
        raise InvalidInput([FieldError(field, problem)])


def known_headers(payload: Mapping[str, Json]) -> dict[str, str]:
    """Headers of a payload's call, as far as they are known before it: a credential by name counts as one."""
    headers: dict[str, str] = payload.get("headers") or {}
    return {**headers, "authorization": ""} if payload.get("auth") else headers


def _call_problems(task: NewTask, url_policy: UrlPolicy, least_ms: int, now: Callable[[], int]) -> Iterator[FieldError]:
    if task.kind in URL_KINDS:
        payload = json.loads(task.payload)  # with a URL, unless a test made the task
        if "url" in payload and (problem := url_policy(payload["url"], known_headers(payload))):
            yield FieldError("payload.url", problem)
        if task.kind == POLL:
            yield from _poll_problems(task, payload, least_ms, now)
    if task.notify and is_url(task.notify):
        notify = Notify.of(task.notify)
        if problem := url_policy(notify.address, known_headers({"auth": notify.auth})):
            yield FieldError("notify_done.url", problem)


def _poll_problems(task: NewTask, payload: Json, least_ms: int, now: Callable[[], int]) -> Iterator[FieldError]:
    if problem := _too_often(payload, least_ms):
        yield FieldError("payload.interval", problem)
    if _lasts_ms(task, now) > MAX_DEADLINE_MS:
        yield FieldError("deadline", f"must be at most {format_duration(MAX_DEADLINE_MS)} after the due time of a poll")


def _too_often(payload: Json, least_ms: int) -> str:
    if "interval" not in payload or parse_duration(payload["interval"]) >= least_ms:  # a test's task may have none
        return ""
    return f"must be at least {format_duration(least_ms)}, which DUECOURSE_POLL_INTERVAL sets"


def _lasts_ms(task: NewTask, now: Callable[[], int]) -> int:
    if task.deadline_at is None:
        return task.deadline_ms or 0
    return task.deadline_at - (now() + task.delay_ms if task.due_at is None else task.due_at)
