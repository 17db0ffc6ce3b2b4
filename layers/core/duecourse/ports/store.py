"""The whole of the ledger's contract, as its adapters keep it; who uses it takes the part that it needs."""

from typing import Protocol

from duecourse.ports.leases import LeaseStore
from duecourse.ports.queues import QueueStore
from duecourse.ports.tasks import TaskStore
from duecourse.ports.upkeep import Upkeep
from duecourse.ports.warmth import Warmth


class Store(TaskStore, LeaseStore, QueueStore, Upkeep, Protocol):
    """The ledger."""

    def warmth(self) -> Warmth:
        """Kinds that come due soon, and functions that were invoked lately, by the same clock."""
