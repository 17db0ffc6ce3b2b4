"""Schedules from Python: the part `schedules` of a client."""

from collections.abc import Sequence
from datetime import datetime
from typing import Unpack

from duecourse.client_fields import PurgeSchedulesFields, ScheduleChanges, ScheduleFields, TimesFields
from duecourse.domain.schedule_status import ScheduleStatus, Upcoming
from duecourse.domain.task import DEFAULT_QUEUE
from duecourse.domain.values import brief, value
from duecourse.link import Link
from duecourse.wire.http.fields import read, read_both
from duecourse.wire.http.pages import DEFAULT_PAGE
from duecourse.wire.http.schedules import (
    AddSchedule,
    BackfillSchedule,
    ChangeSchedule,
    ListSchedules,
    OpenScheduleKey,
    PreviewSchedule,
    PurgeSchedules,
    ScheduleKey,
    ScheduleQueue,
)


@value(frozen=True, slots=True)
class AddedSchedule:
    """Result of an add: the schedule, and `created`, True if this add made it."""

    schedule: ScheduleStatus
    created: bool


@value(frozen=True, slots=True, repr=False)
class ListedSchedules:
    """One page of schedules, and the id to give as `after` for the next page; None after the last."""

    schedules: Sequence[ScheduleStatus]
    next_after: str | None

    def __repr__(self) -> str:
        return brief(self, "schedules", "next_after")


@value(frozen=True, slots=True)
class PurgedSchedules:
    """Number of schedules of one call, and the id to give as `after` for the next call; None after the last."""

    schedules: int
    next_after: str | None


class ScheduleClient:
    """Schedules of one tenant, with the verbs of the HTTP API.

    Each verb raises InvalidInput (naming every wrong field), TaskNotFound, a Conflict, QuotaExceeded or
    StoreUnavailable.
    """

    def __init__(self, link: Link, tenant: str) -> None:
        self._link = link
        self._tenant = tenant

    def add(self, **fields: Unpack[ScheduleFields]) -> AddedSchedule:
        """Add a schedule; the same one again changes nothing."""
        status, created = self._link.schedules.add(read(AddSchedule, fields).schedule(self._tenant))
        return AddedSchedule(status, created)

    def get(self, id: str, queue: str = DEFAULT_QUEUE) -> ScheduleStatus:
        """Return a schedule, with its next ten occurrences and its last ten."""
        key = read(ScheduleKey, {"id": id, "queue": queue})
        return self._link.schedules.get(key.queue, key.id, self._tenant)

    def list(
        self, queue: str = DEFAULT_QUEUE, *, after: str | None = None, limit: int = DEFAULT_PAGE
    ) -> ListedSchedules:
        """Return some schedules of a queue, by id, those after an id."""
        asked = read(ListSchedules, {"queue": queue, "after": after, "limit": limit})
        found, following = self._link.schedules.page(asked.queue, asked.after or "", asked.limit, self._tenant)
        return ListedSchedules(found, following or None)

    def change(self, id: str, queue: str = DEFAULT_QUEUE, **changes: Unpack[ScheduleChanges]) -> ScheduleStatus:
        """Change fields of a schedule, or pause or resume it; with `if_version`, if it has that version."""
        key, asked = read_both(OpenScheduleKey, {"id": id, "queue": queue}, ChangeSchedule, changes)
        return self._link.schedules.change(key.queue, key.id, asked.changes(), asked.if_version, self._tenant)

    def delete(self, id: str, queue: str = DEFAULT_QUEUE) -> None:
        """Delete a schedule: no further occurrence comes, and a running one finishes."""
        key = _schedule(id, queue)
        self._link.schedules.delete(key.queue, key.id, self._tenant)

    def purge(self, queue: str = DEFAULT_QUEUE, **fields: Unpack[PurgeSchedulesFields]) -> PurgedSchedules:
        """Delete schedules by kind or by the beginning of their ids; a dry run only counts them."""
        key, asked = read_both(ScheduleQueue, {"queue": queue}, PurgeSchedules, fields)
        done = self._link.many.purge_schedules(key.queue, asked.purge(), self._tenant)
        return PurgedSchedules(done.schedules, done.next or None)

    def run(self, id: str, queue: str = DEFAULT_QUEUE) -> str:
        """Add one occurrence now, beside the series; returns its id."""
        key = _schedule(id, queue)
        return self._link.schedules.run(key.queue, key.id, self._tenant)

    def backfill(
        self,
        id: str,
        queue: str = DEFAULT_QUEUE,
        *,
        since: datetime | str,
        to: datetime | str,
        overlap: str | None = None,
    ) -> int:
        """Add the occurrences of a past span now, some each second; returns their number."""
        wanted = {"from": since, "to": to, "overlap": overlap}
        key, asked = read_both(OpenScheduleKey, {"id": id, "queue": queue}, BackfillSchedule, wanted)
        return self._link.schedules.backfill(key.queue, key.id, (asked.from_, asked.to), asked.overlap, self._tenant)

    def preview(self, *, since: datetime | str | None = None, **fields: Unpack[TimesFields]) -> Sequence[Upcoming]:
        """Return the times of a rule from `since` on (default: now), at most `count`; nothing is stored."""
        asked = read(PreviewSchedule, {**fields, **({} if since is None else {"from": since})})
        return self._link.schedules.preview(asked.preview(self._link.schedules.now()))


def _schedule(id: str, queue: str) -> OpenScheduleKey:
    return read(OpenScheduleKey, {"id": id, "queue": queue})
