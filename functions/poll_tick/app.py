"""The tick: what the schedule invokes each minute, whether or not a bell rang."""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from duecourse.app import App, Handler
from duecourse.base.event_reader import check_tick
from duecourse.base.metrics import TickLine, measure
from duecourse.errors import InvalidInput, StoreMisused, StoreUnavailable, bounded
from duecourse.ledger.operation_types import Away
from duecourse.ringing.tick import Survey, TickResult

log = logging.getLogger("duecourse.poll_tick")
FILE = Path(__file__).with_name("schedules.yaml")


@Handler
def handler(app: App, event: dict[str, Any], context: Any) -> dict[str, int]:
    """Sweep every shard and drain what the rings missed; then, if so set, stay and serve the rings.

    Where some shards are away, the others are served, and then it fails.
    """
    check_tick(event)
    remaining_ms = context.get_remaining_time_in_millis
    found = _survey(app, remaining_ms)  # before a ring is served: rings would clear what the alarm is to count
    stays = app.settings.tick_linger_ms
    ticked = _sweep_and_stay(app, found, remaining_ms) if stays else _sweep(app, found, remaining_ms)
    if isinstance(ticked, Away):
        raise ticked
    if ticked.away:
        raise ticked.away
    answer = ticked._asdict()
    del answer["away"]
    return answer


def _sweep_and_stay(app: App, found: Survey | Away, remaining_ms: Callable[[], int]) -> TickResult | Away:
    """Sweep while rings are served, then stay for DUECOURSE_TICK_LINGER, or until DUECOURSE_MARGIN begins.

    The tick stays while the store is away; any other error ends it at once.
    """
    # The store may be back in a second, and the next tick is a minute away.
    from duecourse.ringing.linger import Linger  # the bridge's code, which a tick that ends at once does without

    linger = Linger(app, remaining_ms)
    linger.start()
    try:
        ticked = _sweep(app, found, remaining_ms)
        linger.stay_until_over()
        return ticked
    finally:
        linger.stop()
        measure(linger.line())


def _survey(app: App, remaining_ms: Callable[[], int]) -> Survey | Away:
    with suppress(StoreUnavailable, StoreMisused):  # one server's: others may have work
        app.write_deployed()
    try:
        _apply_schedules(app)
        _renew_zones(app, remaining_ms)
        return app.sweeper.survey(remaining_ms)
    except (StoreUnavailable, StoreMisused) as error:
        return error


def _apply_schedules(app: App) -> None:
    """Make the schedules of the deployment's file. A wrong file is logged at each tick, and does not end it."""
    if not FILE.is_file():
        return
    try:
        app.apply_schedules(FILE.read_text("utf-8"))
    except InvalidInput as error:  # thousands of its fields would be more than a line of a log may hold
        log.error("%s is left out: %s", FILE.name, InvalidInput(bounded(error.problems)))  # noqa: TRY400 - its words say all
    except UnicodeDecodeError as error:
        log.error("%s is left out: %s", FILE.name, error)  # noqa: TRY400 - its words say all
    except (StoreUnavailable, StoreMisused) as error:  # a part of it: the others are served
        log.warning("%s waits for the next tick: %s", FILE.name, error)


def _renew_zones(app: App, remaining_ms: Callable[[], int]) -> None:
    """Compute the times of schedules by newer time zones, at the first ticks of a process."""
    if app.zones.are_known:
        return
    try:
        renewed = app.zones.renew(remaining_ms)
    except (StoreUnavailable, StoreMisused) as error:
        log.warning("times by newer time zones wait for the next tick: %s", error)
        return
    if renewed:
        log.info("times of schedules are computed by newer time zones", extra={"schedules": renewed})


def _sweep(app: App, found: Survey | Away, remaining_ms: Callable[[], int]) -> TickResult | Away:
    """Sweep, drain and measure what was found, or answer why nothing could be."""
    if isinstance(found, Away):
        return found
    try:
        ticked = app.sweeper.tick(found, remaining_ms)
    except (StoreUnavailable, StoreMisused) as error:
        return error
    measure(
        TickLine(
            OldestOverdue=ticked.oldest_overdue_ms,
            Dead=ticked.dead_total,
            Claimed=ticked.claimed,
            Done=ticked.done,
            Retried=ticked.retried,
            Reclaimed=ticked.reclaimed,
            Lapsed=ticked.lapsed,
            LapsedAtTarget=ticked.lapsed_at_target,
            LeftOut=ticked.left_out,
        )
    )
    return ticked
