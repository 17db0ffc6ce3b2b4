"""The survey of a tick: which shards have something to do, and which of the idle ones are to be swept this time."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from zlib import crc32

from duecourse.domain.batches import pieces
from duecourse.domain.task import Shard
from duecourse.errors import StoreUnavailable
from duecourse.ports.ledger import Away
from duecourse.ports.upkeep import Outlook, Upkeep

T = TypeVar("T")
HasTime = Callable[[], bool]

AT_A_TIME = 50
"""Number of shards read or swept at once; the time left is checked in between."""
OUTLOOKS_AT_A_TIME = 500
"""The same for an outlook, which costs the server a tenth of that."""
SOON_MS = 60_000
"""A tick works shards with something to do within this time: until the next tick."""
PARTS = 4
"""Number of parts of the shards: a tick sweeps the idle ones of one part, so that each is swept in four minutes."""
ROUND_STEP_MS = 60_000
"""Time from tick to tick."""
ROUND_MS = PARTS * ROUND_STEP_MS
"""Age of a part's last sweep from which it is swept whatever the others' ages are: the next tick would be too late."""


class Survey(NamedTuple):
    """State of the ledger at the start of a tick; `oldest_overdue_ms` is the lateness of the longest waiting task.

    `shards` are those that answer. `busy` ones among them have, or may have, something to do before the next tick.
    `resting` are idle and to be swept this time, which completes the sweep of `parts` as of `now`.
    `left_out` shards are not among `shards`, and `away` is the reason: a cluster's primary has gone, or a queue has
    another number of shards than the settings say.
    """

    shards: list[Shard]
    busy: list[Shard]
    resting: list[Shard]
    parts: frozenset[int]
    now: int
    oldest_overdue_ms: int
    dead_total: int
    away: Away | None
    left_out: int


def take(store: Upkeep, has_time: HasTime) -> Survey:
    """See what there is, and change nothing. Raises StoreUnavailable where the whole store is away.

    Shards that time does not suffice to look at are among the busy ones.
    """
    every = store.shards()
    outlooks, away = _asked(store.outlook_of, every, OUTLOOKS_AT_A_TIME, has_time)
    idle = [shard for shard, outlook in outlooks.items() if not has_work(outlook)]
    stats, lost = _asked(store.stats_of, _without(every, away, idle), AT_A_TIME, has_time)
    away |= lost
    if any(isinstance(error, StoreUnavailable) for error in away.values()):
        store.ping()
    now = max((outlook.now for outlook in outlooks.values()), default=0)
    parts = _due_parts(store, now) if len(idle) > AT_A_TIME else frozenset[int]()
    return Survey(
        shards=_without(every, away),
        busy=_without(every, away, idle),
        resting=[shard for shard in idle if part_of(shard) in parts] if parts else idle,
        parts=parts,
        now=now,
        oldest_overdue_ms=max((one.overdue_ms for one in stats.values() if not one.settings.paused), default=0),
        dead_total=sum(outlook.dead for outlook in outlooks.values()),
        away=next(iter(away.values()), None),
        left_out=len(away),
    )


def has_work(outlook: Outlook) -> bool:
    """True if a shard has something to do before the next tick."""
    return 0 < outlook.next_at <= outlook.now + SOON_MS


def part_of(shard: Shard) -> int:
    """The part that a shard belongs to."""
    return crc32(str(shard).encode()) % PARTS


def _due_parts(store: Upkeep, now: int) -> frozenset[int]:
    """The part that was swept longest ago, and every part that the next tick would sweep too late."""
    try:
        swept_at = store.rounds().swept_at()
    except StoreUnavailable:  # the record is on a server that is away, and the shards are not: they take turns
        return frozenset({now // ROUND_STEP_MS % PARTS})
    ages = {part: now - swept_at.get(part, 0) for part in range(PARTS)}
    oldest = max(ages, key=ages.__getitem__)
    # An age below 0: the server's clock was set back, and would keep this part waiting.
    return frozenset({oldest} | {part for part, age in ages.items() if not 0 <= age < ROUND_MS})


def _asked(
    ask: Callable[[Sequence[Shard]], list[T | Away]], shards: Sequence[Shard], size: int, has_time: HasTime
) -> tuple[dict[Shard, T], dict[Shard, Away]]:
    """Answers of those shards that answer while there is time, and the errors of the others."""
    answers: dict[Shard, T] = {}
    away: dict[Shard, Away] = {}
    for some in pieces(shards, size):
        if has_time():
            for shard, answer in zip(some, ask(some), strict=True):
                if isinstance(answer, Away):
                    away[shard] = answer
                else:
                    answers[shard] = answer
    return answers, away


def _without(shards: Sequence[Shard], *others: Mapping[Shard, object] | Sequence[Shard]) -> list[Shard]:
    gone = set[Shard]().union(*others)
    return [shard for shard in shards if shard not in gone]
