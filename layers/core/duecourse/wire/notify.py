"""Who is told of a task's end, as a request says it."""

from typing import Self

from pydantic import ConfigDict, Field, model_validator

from duecourse.domain.follow_up import is_url
from duecourse.wire.fields import Name, Strict, given, refuse_fields
from duecourse.wire.kinds import Url


class NotifyDone(Strict):
    """Who is told once the task is done or dead, by a task of its own with retries: a URL, or a kind's target."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [given("url"), given("target")]})

    url: Url | None = Field(
        None,
        description="Gets a POST with {type, timestamp, data}, in the manner of Standard Webhooks.",
        examples=["https://example.com/hooks/tasks"],
    )
    target: Name | None = Field(
        None,
        description="A kind that DUECOURSE_TARGETS names: its target is handed a task of that kind, whose payload is "
        "{type, timestamp, data}.",
        examples=["audit"],
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.url is None) == (self.target is None):
            raise refuse_fields("give either url or target", "url", "target")
        return self

    def text(self) -> str:
        """The same as a record keeps it."""
        return self.url or self.target or ""


def show_notify(text: str) -> dict[str, str]:
    """Who is told, as a request says it."""
    return {"url" if is_url(text) else "target": text}
