"""A tick that stays and serves rings itself: the bridge's code, with this process's drain at its end."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from duecourse import wiring
from duecourse.engine.drain import Drained
from duecourse.ledgers import open_bells
from duecourse.parts import part
from duecourse.wire.events.rings import Heard, shards_behind, shards_of

if TYPE_CHECKING:
    from duecourse.bridge.linger import Linger
    from duecourse.bridge.rings import Warming


def start_linger(remaining_ms: Callable[[], int]) -> "Linger":
    """Part that serves rings in this invocation, from now on for the set time.

    Raises InvalidSettings where the ledger has no bells.
    """
    from duecourse.bridge.linger import Linger

    given = wiring.settings()
    linger = Linger(
        open_bells(given),
        lambda bells, left_ms: _drain(shards_of(bells, given.namespace), left_ms)._asdict(),
        lambda expired: wiring.watches().note(expired).added,
        remaining_ms,
        linger_ms=given.tick_linger_ms,
        margin_ms=given.margin_ms,
        in_flight=given.bridge_in_flight,
        warming=_warming(),
    )
    linger.start()
    return linger


@part
def _warming() -> "Warming | None":
    """Warming of functions; kept by the process, so that each tick knows what rang in those before it."""
    from duecourse.bridge.rings import Warming

    given = wiring.settings()
    return Warming(_warm, given.warm_ms, given.warm_idle_ms) if given.warm_ms else None


def _drain(heard: Heard, remaining_ms: Callable[[], int]) -> Drained:
    return wiring.drainer().drain(heard.shards, remaining_ms, heard.triggers)


def _warm(bells: Sequence[str]) -> list[str]:
    shards = shards_behind(bells, wiring.settings().namespace).shards
    return wiring.warmer().warm(shards)
