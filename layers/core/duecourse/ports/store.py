"""The whole of the ledger's contract, as its adapters keep it; who uses it takes the part that it needs."""

from typing import Protocol

from duecourse.domain.task import Shard
from duecourse.ports.bulk import BulkStore
from duecourse.ports.deployments import Deployments
from duecourse.ports.in_flight import InFlight
from duecourse.ports.leases import LeaseStore
from duecourse.ports.queues import QueueStore
from duecourse.ports.schedule_file import FileRecord
from duecourse.ports.schedules import ScheduleStore
from duecourse.ports.seals import SealKeys
from duecourse.ports.tasks import TaskStore
from duecourse.ports.upkeep import Swept, Upkeep
from duecourse.ports.waits import WaitStore
from duecourse.ports.warmth import Warmth


class Store(TaskStore, LeaseStore, QueueStore, BulkStore, Upkeep, WaitStore, ScheduleStore, Protocol):
    """The ledger."""

    def sweep(self, shard: Shard, *, retention_ms: int, dead_retention_ms: int | None = None) -> Swept:
        """Sweep one shard as `sweep_all` does."""

    def warmth(self) -> Warmth:
        """Kinds that come due soon, and functions that were invoked lately, by the same clock."""

    def seal_keys(self) -> SealKeys:
        """Data keys that seal credentials, kept with the tasks."""

    def deployments(self) -> Deployments:
        """Kinds and results table of the deployments, by the same clock."""

    def schedule_files(self) -> FileRecord:
        """Record of the schedule files of deployments."""

    def in_flight(self) -> InFlight:
        """Queries whose requests wait for a call, by the same clock."""

    def close(self) -> None:
        """End the connections to the ledger, or its use of a folder."""
