"""The scheduled event that makes a tick, as EventBridge rules and EventBridge Scheduler send it."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from duecourse.errors import InvalidInput
from duecourse.wire.fields import field_errors


class ScheduledEvent(BaseModel):
    """Source: AWS, "Tutorial: Create an EventBridge scheduled rule" and "EventBridge Scheduler: templated targets"."""

    model_config = ConfigDict(frozen=True)

    id: str
    source: Literal["aws.events", "aws.scheduler"]
    detail_type: Literal["Scheduled Event"] = Field(alias="detail-type")
    time: str


def parse_schedule(event: Any) -> ScheduledEvent:
    """The tick's event, checked. Raises InvalidInput, naming every wrong field."""
    try:
        return ScheduledEvent.model_validate(event)
    except ValidationError as error:
        raise InvalidInput(field_errors(error.errors())) from None
