"""A tick that stays and serves rings itself: the bridge's code, with this process's drain at its end."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from duecourse.domain.history import Trigger
from duecourse.ledgers import open_bells
from duecourse.wire.events.rings import shards_of
from duecourse.wiring import App

if TYPE_CHECKING:
    from duecourse.bridge.linger import Linger


def start_linger(app: App, remaining_ms: Callable[[], int]) -> "Linger":
    """Part that serves rings in this invocation, from now on for the set time.

    Raises InvalidSettings where the ledger has no bells.
    """
    from duecourse.bridge.linger import Linger

    given = app.settings

    def drain(bells: Mapping[str, Trigger], left_ms: Callable[[], int]) -> dict[str, int]:
        heard = shards_of(bells, given.namespace)
        return app.drainer.drain(heard.shards, left_ms, heard.triggers)._asdict()

    linger = Linger(
        open_bells(given),
        drain,
        lambda expired: app.watches.note(expired).added,
        remaining_ms,
        linger_ms=given.tick_linger_ms,
        margin_ms=given.margin_ms,
        in_flight=given.bridge_in_flight,
        warming=app.warming,
    )
    linger.start()
    return linger
