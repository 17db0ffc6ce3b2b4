"""A tick that stays and serves rings itself: the bridge's code, with this process's drain at its end."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from duecourse.domain.history import Door
from duecourse.ledgers import open_bells
from duecourse.wire.events.rings import shards_of
from duecourse.wiring import App

if TYPE_CHECKING:
    from duecourse.bridge.linger import Linger


def linger(app: App, remaining_ms: Callable[[], int]) -> "AbstractContextManager[Linger | None]":
    """Part that serves rings in this invocation for the set time; None if the tick does not linger.

    Raises InvalidSettings where the ledger has no bells.
    """
    given = app.settings
    if not given.tick_linger_ms:
        return nullcontext()
    from duecourse.bridge.linger import Linger

    def drain(bells: Mapping[str, Door], left_ms: Callable[[], int]) -> dict[str, int]:
        heard = shards_of(bells, given.namespace)
        return app.drainer.drain(heard.shards, left_ms, heard.doors)._asdict()

    return Linger(
        open_bells(given),
        drain,
        lambda expired: app.watches.note(expired).added,
        remaining_ms,
        linger_ms=given.tick_linger_ms,
        margin_ms=given.margin_ms,
        in_flight=given.bridge_in_flight,
        warming=app.warming,
    )
