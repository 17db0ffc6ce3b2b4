"""The bell: what the bridge invokes when something is due, or soon will be, or a watched key has expired."""

import logging
from typing import Any

from duecourse.base.cold_imports import lasting

with lasting():
    from duecourse.app import App, Handler
    from duecourse.base.metrics import RungLine, WarmLine, measure
    from duecourse.ledger.task import cut_detail
    from duecourse.ledger.watched_keys import show
    from duecourse.ringing.bridge_event import read_rings, read_warm_up, shards_of

log = logging.getLogger("duecourse.on_expired")


@Handler
def handler(app: App, event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Make tasks of watched keys that expired, and drain the shards whose bells rang; or warm what will do so."""
    if isinstance(event, dict) and "warm" in event:
        return warm(app, event)
    given = read_rings(event)
    rang = shards_of(given.bells, app.settings.namespace)
    noted = app.watches.note(given.expired)
    if rang.unknown:
        log.warning("ignored keys that are not bells of this stack", extra={"keys": [*map(cut_detail, rang.unknown)]})
    if noted.unknown:
        log.warning(
            "ignored keys that match no pattern of DUECOURSE_WATCH",
            extra={"keys": [show(key) for key in noted.unknown]},
        )
    drained = app.drainer.drain(rang.shards, context.get_remaining_time_in_millis, rang.triggers)
    measure(
        RungLine(
            Added=noted.added,
            Claimed=drained.claimed,
            Done=drained.done,
            Retried=drained.retried,
            Reclaimed=drained.reclaimed,
            Lapsed=drained.lapsed,
            LapsedAtTarget=drained.lapsed_at_target,
            Dead=drained.dead,
        )
    )
    return {"added": noted.added, **drained._asdict()}


def warm(app: App, event: dict[str, Any]) -> dict[str, Any]:
    """Be ready for a ring, and have the functions be so that its tasks will be handed to."""
    rings = shards_of(read_warm_up(event), app.settings.namespace)
    if rings.unknown:
        log.warning("ignored keys that are not bells of this stack", extra={"keys": [*map(cut_detail, rings.unknown)]})
    app.get_ready()
    warmed = app.warmer.warm(rings.shards)
    measure(WarmLine(FunctionsWarmed=len(warmed)))
    return {"warmed": warmed}
