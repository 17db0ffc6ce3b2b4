"""The tick: what the schedule invokes each minute, whether or not a bell rang."""

import logging
from typing import Any

from duecourse.errors import StoreUnavailable
from duecourse.lingering import linger
from duecourse.measures import measure
from duecourse.process import Handler
from duecourse.wire.events.schedule import check_tick
from duecourse.wiring import App

log = logging.getLogger("duecourse.poll_tick")


@Handler
def handler(app: App, event: dict[str, Any], context: Any) -> dict[str, int]:
    """Sweep every shard and drain what the rings missed; then, if so set, stay and serve the rings.

    Where some shards are away, the others are served, and then it fails.
    """
    check_tick(event)
    remaining_ms = context.get_remaining_time_in_millis
    try:
        found = app.sweeper.survey(remaining_ms)
    except StoreUnavailable:
        with linger(app, remaining_ms):  # whose rings are served once it is back
            raise
    with linger(app, remaining_ms) as lingering:
        ticked = app.sweeper.tick(found, remaining_ms)
        measure(
            {
                "OldestOverdue": ticked.oldest_overdue_ms,
                "Dead": ticked.dead_total,
                "Claimed": ticked.claimed,
                "Done": ticked.done,
                "Retried": ticked.retried,
                "Reclaimed": ticked.reclaimed,
                "LeftOut": ticked.left_out,
            }
        )
    if lingering:
        heard, did = lingering.stats(), lingering.counts
        measure(
            {
                "Rings": heard.rings,
                "Lateness": heard.latest_ms,
                "Keys": heard.keys,
                "KeysLost": heard.lost,
                **{name: did[name.lower()] for name in ("Claimed", "Done", "Retried", "Dead", "Added")},
            }
        )
    if ticked.away:
        raise ticked.away
    answer = ticked._asdict()
    del answer["away"]
    return answer
