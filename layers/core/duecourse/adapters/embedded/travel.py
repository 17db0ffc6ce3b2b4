"""Time that is moved by hand: a clock for a ledger in this process, and its bells in their order."""

from duecourse.adapters.embedded.store import EmbeddedStore
from duecourse.domain.task import Shard

AGAIN_MS = 1_000
"""Time after which a bell that has rung rings again, where its shard still has something due."""


class TravelClock:
    """Epoch milliseconds that pass only when the clock is moved, and never back."""

    def __init__(self, at: int) -> None:
        self._at = at

    def now(self) -> int:
        """Epoch milliseconds."""
        return self._at

    def move(self, at: int) -> None:
        """Let it be `at`. Raises ValueError for an instant that is past."""
        if at < self._at:
            raise ValueError("the clock only moves forward")
        self._at = at


class Journey:
    """A ledger's bells, each at the instant of its own: the clock moves from one to the next."""

    def __init__(self, store: EmbeddedStore, clock: TravelClock) -> None:
        self._store = store
        self._clock = clock
        self._rang: list[Shard] = []
        self._hung = {shard: at for shard in store.shards() if (at := store.bell_at(shard))}
        self._fresh = set(self._hung)
        """Shards with a new bell since their last ring."""
        self.close = store.listen(self._hear)
        """Ends the listening."""

    def next(self, until: int) -> list[Shard]:
        """Move the clock to the next bell, or to `until` if none goes before; returns the shards whose bells go."""
        self._look_again()
        hung = {shard: self._goes_at(shard, at) for shard, at in list(self._hung.items())}
        at = min(hung.values(), default=until + 1)
        self._clock.move(min(at, until))
        self._rang = [shard for shard, goes in hung.items() if goes <= at] if at <= until else []
        self._fresh.difference_update(self._rang)
        return self._rang

    def _goes_at(self, shard: Shard, at: int) -> int:
        """Instant of a bell. For what is due at once it hangs a millisecond off: here, that may be served as it is."""
        now = self._clock.now()
        return now if at <= now or (at == now + 1 and shard in self._fresh) else at

    def _hear(self, shard: Shard, at: int) -> None:
        self._fresh.add(shard)
        if at:
            self._hung[shard] = at
        else:
            self._hung.pop(shard, None)

    def _look_again(self) -> None:
        """Let a bell that rang for nothing, or whose tasks have to wait, ring again a second later."""
        for shard in set(self._rang) - self._fresh:
            if 0 < self._store.bell_at(shard) <= self._clock.now():
                self._hung[shard] = self._clock.now() + AGAIN_MS
