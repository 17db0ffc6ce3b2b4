"""Claims whose reply was lost, by the nonces of the leases that they may have made."""

import threading
from collections.abc import Iterable
from typing import NamedTuple

from duecourse.domain.task import Shard

LATEST_S = 5.0
"""Time after which a claim that was lost on its way is done no more: the connection that it went by is closed."""
MOST = 8
"""Most lost claims of a shard that are kept; the leases of earlier ones lapse."""


class LostClaim(NamedTuple):
    """One claim: its nonces, the time at which it was sent (time.monotonic()), lengths of its leases (ms)."""

    nonces: bytes
    sent_at: float
    lease_ms: tuple[int, ...]


class LostClaims:
    """The lost claims of one process, by their shard; the caller that takes some looks for their leases alone."""

    def __init__(self) -> None:
        self._claims: dict[Shard, list[LostClaim]] = {}
        self._changing = threading.Lock()

    def add(self, shard: Shard, claims: Iterable[LostClaim]) -> None:
        """Keep claims whose leases are still to be looked for."""
        with self._changing:
            kept = [*self._claims.get(shard, ()), *claims][-MOST:]
            if kept:
                self._claims[shard] = kept

    def take(self, shard: Shard) -> list[LostClaim]:
        """The claims of a shard whose leases may be found; they are kept no longer."""
        if shard not in self._claims:  # looked at without the lock: most claims get their answers
            return []
        with self._changing:
            return self._claims.pop(shard, [])
