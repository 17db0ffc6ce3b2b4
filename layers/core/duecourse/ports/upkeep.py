"""Contract of the upkeep that a tick does, shard by shard."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from duecourse.domain.task import Shard
from duecourse.ports.idempotency import IdempotencyStore
from duecourse.ports.ledger import Away, Figures


class Outlook(NamedTuple):
    """The next instant at which a shard has something to do, 0 for none: a task comes due, or a lease ends.

    The instant is past where due tasks wait, whatever they wait for. `dead` is the number of dead tasks.
    """

    next_at: int
    dead: int
    now: int


class Swept(NamedTuple):
    """Figures of one sweep: lapsed leases, tasks dead by it, ended tasks forgotten; `more` if bounded.

    `revision` is the version of the queue's settings that the shard had. Leases that lapsed while nobody looked are
    taken back at `spared_until`, 0 for none: some seconds later, for their tasks may go on.
    """

    reclaimed: int
    died: int
    pruned: int
    more: bool
    bell_at: int
    now: int
    revision: str = ""
    spared_until: int = 0


class Rounds(Protocol):
    """Instants at which each part of the shards was last swept, by its number; every verb raises StoreUnavailable."""

    def swept_at(self) -> dict[int, int]:
        """The instant of each part's last sweep; a part that was never swept is left out."""

    def note(self, parts: Iterable[int], at: int) -> None:
        """Note that every idle shard of these parts, one at least, was swept at `at`."""


class Upkeep(Figures, Protocol):
    """The ledger for those who keep it in order."""

    def idempotency(self) -> IdempotencyStore:
        """Records of requests with an Idempotency-Key, kept with the tasks and by the same clock."""

    def rounds(self) -> Rounds:
        """Instants at which the parts of the shards were last swept, kept with the tasks."""

    def warnings(self) -> list[str]:
        """Faults of the store's servers by which tasks can be lost or come at a wrong time, each in a sentence."""

    def outlook_of(self, shards: Sequence[Shard]) -> list[Outlook | Away]:
        """Next work of many shards, or the error for one: a few reads a shard, and no change."""

    def sweep_all(
        self, shards: Sequence[Shard], *, retention_ms: int, dead_retention_ms: int | None = None
    ) -> list[Swept | Away]:
        """Take back lapsed leases, forget what finished over `retention_ms` ago, hang the bell: a bounded step a shard.

        Answers for each shard what was done, or why nothing was. A queue's own `retention_ms` goes before the one
        given. Dead tasks are kept if `dead_retention_ms` is None. Otherwise they are forgotten that long after their
        death, and that long after the first such sweep at the earliest. A shard without tasks or settings may be
        forgotten as a whole.
        """
