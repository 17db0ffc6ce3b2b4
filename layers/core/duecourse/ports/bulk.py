"""Contract of the verbs on many tasks at once."""

from typing import Protocol

from duecourse.domain.bulk import Bulk, BulkResult, Reached
from duecourse.domain.dead import Deaths, DeathsFound
from duecourse.domain.schedule import Purge, Purged
from duecourse.domain.task import DEFAULT_TENANT
from duecourse.ports.ledger import Ledger


class BulkStore(Ledger, Protocol):
    """The ledger for those who purge or cancel many tasks of a queue, or look at its dead."""

    def bulk(
        self, queue: str, asked: Bulk, after: Reached | None = None, tenant: str = DEFAULT_TENANT, *, by: str = ""
    ) -> BulkResult:
        """Count, delete or cancel those of a tenant's tasks that `asked` describes, from `after` on.

        The work of one call is bounded: it may do less than its limit, or nothing, and still have a `next`. Each step
        is done or not; if the store fails between two steps, those before are done. A task that comes to a place behind
        the one that was reached is left out.
        """

    def deaths(
        self, queue: str, asked: Deaths, after: Reached | None = None, tenant: str = DEFAULT_TENANT
    ) -> DeathsFound:
        """Deaths of a tenant's tasks that `asked` describes, from `after` on, oldest first in each shard.

        The work of one call is bounded: it may find fewer than its limit, or none, and still have a `next`. A task
        whose record cannot be read is left out.
        """

    def purge_schedules(self, queue: str, asked: Purge, tenant: str = DEFAULT_TENANT) -> Purged:
        """Delete schedules of a tenant by id, as `drop_schedule` does; a dry run only counts them.

        One that is changed after its kind was seen stays.
        """
