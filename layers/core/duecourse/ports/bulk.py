"""Contract of the verb on many tasks at once."""

from typing import Protocol

from duecourse.domain.bulk import Bulk, BulkResult, Reached
from duecourse.domain.task import DEFAULT_TENANT


class BulkStore(Protocol):
    """The ledger for those who purge or cancel many tasks of a queue."""

    def bulk(
        self, queue: str, asked: Bulk, after: Reached | None = None, tenant: str = DEFAULT_TENANT, *, by: str = ""
    ) -> BulkResult:
        """Count, delete or cancel those of a tenant's tasks that `asked` describes, from `after` on.

        The work of one call is bounded: it may do less than its limit, or nothing, and still have a `next`. Each step
        is done or not; if the store fails between two steps, those before are done. A task that comes to a place behind
        the one that was reached is left out.
        """
