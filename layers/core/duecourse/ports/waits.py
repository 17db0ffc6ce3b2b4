"""Contract of waiting for the ends of tasks: the ledger publishes an end where somebody has said that it waits."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from duecourse.domain.task import Shard


class Waited(NamedTuple):
    """Name of a task for which somebody waits, whatever its generation."""

    queue: str
    tenant: str
    id: str


class Endings(Protocol):
    """Ends of tasks, heard by one thread; every verb but `wake` raises StoreUnavailable once it may miss some."""

    def hear(self, timeout_s: float) -> Sequence[Waited]:
        """Ends that were published since the last call, waited for at most `timeout_s`; none after a `wake`."""

    def prove(self) -> None:
        """Return if the store still reaches this listener."""

    def wake(self) -> None:
        """Have `hear` return at once, now or when it is next called; any thread may call this."""

    def close(self) -> None:
        """Stop listening."""


class WaitStore(Protocol):
    """The ledger for those who wait."""

    def endings(self) -> Endings:
        """Listen from now on. Raises StoreUnavailable."""

    def await_ends(self, shard: Shard, tasks: Sequence[Waited], for_ms: int) -> list[bool]:
        """Have the shard's ends published for so long; True for each of the tasks that is neither scheduled nor leased.

        Both are one step: an end is in the answer, or it is published.
        """
