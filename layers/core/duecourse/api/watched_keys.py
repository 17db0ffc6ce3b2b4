"""Setting of watched keys: whose expiry becomes a task."""

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    RootModel,
    StrictStr,
    ValidationInfo,
    field_validator,
)

from duecourse.api.fields import (
    Duration,
    JsonObject,
    OpenKind,
    OpenQueue,
    Strict,
    between,
    read,
    reject_fields,
)
from duecourse.api.kind_payloads import check_payload
from duecourse.base.json_text import Json
from duecourse.base.times import DAY_MS
from duecourse.ledger.task import DEFAULT_QUEUE
from duecourse.ledger.watched_keys import Pattern, Watch

MAX_PATTERN = 512
MIN_WINDOW_MS = 500
"""Bridges hear one expiry some milliseconds apart, and a busy one a little later."""
MAX_WINDOW_MS = DAY_MS


def _pattern(text: str) -> str:
    Pattern(text)
    return text


class WatchSetting(Strict):
    """Keys of another program whose expiry becomes a task."""

    model_config = ConfigDict(frozen=True)

    pattern: Annotated[StrictStr, Field(min_length=1, max_length=MAX_PATTERN), AfterValidator(_pattern)] = Field(
        description="Pattern of the keys' names, with named parts in braces.", examples=["send_message-{user}-{type}"]
    )
    kind: OpenKind = Field(description="Kind of the task.")
    payload: JsonObject = Field(
        default_factory=dict,
        validate_default=True,
        description="Payload of the task; `key` is added, with the parts of the name.",
    )
    window_ms: Annotated[Duration, between(MIN_WINDOW_MS, MAX_WINDOW_MS)] = Field(
        1_000, alias="window", description="Time in which repeated expiries of a key count once."
    )
    queue: OpenQueue = Field(DEFAULT_QUEUE, description="Queue of the task.")

    @field_validator("payload")
    @classmethod
    def _fits_its_kind(cls, payload: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "key" in payload:
            raise reject_fields("is reserved for the parts of the key's name: rename this field", "key")
        check_payload(info.data.get("kind", ""), payload)
        return payload

    def watch(self) -> Watch:
        """The watch for the engine."""
        return Watch(Pattern(self.pattern), self.kind, self.payload, self.window_ms, self.queue)


class _Watches(RootModel[list[WatchSetting]]):
    """All that is watched."""


def read_watches(entries: Json) -> tuple[Watch, ...]:
    """The entries as the engine takes them. Raises InvalidInput, naming every wrong field, ValueError for no list."""
    if not isinstance(entries, list):
        raise ValueError("must be a valid list")  # noqa: TRY004 - a wrong value, to its reader
    return tuple(one.watch() for one in read(_Watches, entries).root)
