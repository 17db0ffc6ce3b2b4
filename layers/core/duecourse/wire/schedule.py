"""The scheduled event that makes a tick, as EventBridge rules and EventBridge Scheduler send it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ScheduledEvent(BaseModel):
    """Source: AWS, "Tutorial: Create an EventBridge scheduled rule" and "EventBridge Scheduler: templated targets"."""

    model_config = ConfigDict(frozen=True)

    id: str
    source: Literal["aws.events", "aws.scheduler"]
    detail_type: Literal["Scheduled Event"] = Field(alias="detail-type")
    time: str
