"""Knowledge that lets functions be warm in time: kinds due soon, and functions that nothing invoked lately."""

from collections.abc import Sequence
from typing import Protocol

from duecourse.domain.task import Shard


class Warmth(Protocol):
    """The future and the recent past of one ledger; every verb is one bounded look and raises StoreUnavailable."""

    def get_ready(self) -> None:
        """Return if the store answers, and have this process prepare the verbs of who works tasks."""

    def coming(self, shard: Shard, within_ms: int) -> list[str]:
        """Kinds of the first tasks that come due within `within_ms`; throttled tasks are left out.

        Raises StoreMisused where the shard's queue has another number of shards than the settings say.
        """

    def idle(self, functions: Sequence[str], idle_ms: int) -> list[str]:
        """The functions of these that nothing invoked for `idle_ms`; from now on all of them count as invoked."""
