"""The scheduled event that makes a tick, as EventBridge rules and EventBridge Scheduler send it."""

from duecourse.domain.task import Json
from duecourse.wire.events.origin import check_origin
from duecourse.wire.events.tables import Table

EXPECTED = "the scheduled event of an EventBridge rule or of EventBridge Scheduler"


def check_tick(event: Json) -> None:
    """Raise InvalidInput, naming every wrong field, where the event is no schedule's.

    Source: AWS, "Tutorial: Create an EventBridge scheduled rule" and "EventBridge Scheduler: templated targets".
    """
    table = Table(check_origin(event, EXPECTED, ("source", "detail-type")))
    table.text("id")
    table.one_of("source", ("aws.events", "aws.scheduler"))
    table.one_of("detail-type", ("Scheduled Event",))
    table.text("time")
    table.end()
