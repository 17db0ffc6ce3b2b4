"""Warmth on an ordered map.

Keys are `invoked NUL function`, with when it was last invoked (8 bytes, epoch ms).
"""

from collections.abc import Sequence
from itertools import islice

from duecourse.adapters.keyvalue.steps import Steps
from duecourse.domain.task import Shard

INVOKED = b"invoked\0"
LOOK = 64
"""How many tasks are looked at: those that come due first."""


class KeyValueWarmth:
    """What comes due soon, and what was invoked (ports.warmth.Warmth), each verb one step on the map."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def coming(self, shard: Shard, within_ms: int) -> list[str]:
        """See Warmth."""
        with self._steps.look(shard) as ledger:
            first = islice(ledger.turns.coming(ledger.now + within_ms), LOOK)
            return list(dict.fromkeys(ledger.held(sid).task.kind for sid in first))

    def idle(self, functions: Sequence[str], idle_ms: int) -> list[str]:
        """See Warmth."""
        with self._steps.batch() as (batch, now):
            last = {name: int.from_bytes(batch.get(INVOKED + name.encode()) or b"") for name in functions}
            for name in functions:
                batch.put(INVOKED + name.encode(), now.to_bytes(8))
            return [name for name in functions if last[name] <= now - idle_ms]
