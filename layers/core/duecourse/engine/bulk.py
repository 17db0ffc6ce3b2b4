"""Operations of callers on many tasks, or schedules, of a queue at once."""

from typing import Any

from duecourse.domain.bulk import Act, Bulk, BulkResult, Reached
from duecourse.domain.idempotency import KeyedTry
from duecourse.domain.schedule import Purge, Purged
from duecourse.domain.task import DEFAULT_TENANT, Status
from duecourse.ports.bulk import BulkStore


class BulkActions:
    """Operations on many tasks or schedules of a queue."""

    def __init__(self, store: BulkStore) -> None:
        self._store = store

    def act(
        self, queue: str, asked: Bulk, after: Reached | None, tenant: str, by: str, keyed: KeyedTry | None = None
    ) -> BulkResult:
        """Count, delete or cancel tasks, as BulkStore does.

        A request with a key counts first, and notes the place that it will reach. Each try then acts up to that place,
        on tasks that were there when the first try counted: a repeat takes no others.
        """
        if keyed is None or asked.act is Act.COUNT:
            return self._store.bulk(queue, asked, after, tenant, by=by)

        def look() -> list[Any]:
            now = self._store.now()
            found = self._store.bulk(queue, asked._replace(act=Act.COUNT, before=now), after, tenant)
            return [now, *found]

        before, count, reached = keyed.first_saw(look)
        until = Reached(reached[0], Status(reached[1]), *reached[2:]) if reached else None
        asked, acted, place = asked._replace(before=before, until=until), 0, after
        while acted < count:
            done = self._store.bulk(queue, asked._replace(limit=count - acted), place, tenant, by=by)
            acted, place = acted + done.tasks, done.next
            if place in {None, until}:
                break
        return BulkResult(count if keyed.is_repeat else acted, until)

    def purge_schedules(
        self, queue: str, asked: Purge, tenant: str = DEFAULT_TENANT, keyed: KeyedTry | None = None
    ) -> Purged:
        """Delete schedules, as BulkStore does; a repeat of a request with a key deletes no others."""
        if keyed is None or asked.dry_run:
            return self._store.purge_schedules(queue, asked, tenant)

        def look() -> list[Any]:
            now = self._store.now()
            return [now, *self._store.purge_schedules(queue, asked._replace(dry_run=True), tenant)]

        before, count, until = keyed.first_saw(look)
        purged = 0
        if count:
            again = asked._replace(limit=count, until=until, before=before)
            purged = self._store.purge_schedules(queue, again, tenant).schedules
        return Purged(count if keyed.is_repeat else purged, until)
