"""Every setting, read from the environment once: the names are the fields with the prefix `DUECOURSE_`."""

import json
import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from duecourse.domain.address import nodes_of
from duecourse.domain.shards import MAX_SHARDS
from duecourse.domain.times import parse_duration
from duecourse.errors import FieldError, InvalidSettings
from duecourse.wire.fields import Name, field_errors, refuse_fields

PREFIX = "DUECOURSE_"
BUILT_IN = ("poll", "webhook", "reminder")
SERVICE = re.compile(r"/[^/]+(/\d+)?/?")
TARGET = re.compile(
    r"^(inline|lambda:[A-Za-z0-9_.:-]{1,170}|sqs:([A-Za-z0-9_-]{1,75}(\.fifo)?|https?://[!-~]{1,500})|amqp:[!-~]{1,255})$"
)


def _targets(value: Any) -> Any:
    return _json(value, '{"report": "lambda:ReportFunction"}')


def _shards(value: Any) -> Any:
    return _json(value, '{"default": 8}')


def _json(value: Any, example: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError(f"must be JSON such as {example}") from None


def _target(value: str) -> str:
    if not TARGET.fullmatch(value):
        raise ValueError("must be inline, lambda:<function>, sqs:<queue> or amqp:<queue>")
    return value


def _inline_is_built_in(targets: dict[str, str]) -> dict[str, str]:
    strangers = [kind for kind, target in targets.items() if target == "inline" and kind not in BUILT_IN]
    if strangers:
        raise ValueError(f"only {', '.join(BUILT_IN)} can be inline: give {', '.join(strangers)} another target")
    return targets


def has_a_port(url: str) -> bool:
    """Whether each port in `url` is one, or there is none: else each call would fail with another's traceback."""
    try:
        return all(port for _, port in nodes_of(url, 1))
    except ValueError:
        return False


def _reachable(url: str) -> str:
    if url.startswith("leveldb://") and not url.startswith("leveldb:///"):
        raise ValueError("must name a folder by its absolute path: leveldb:///var/lib/duecourse")
    if not has_a_port(url):
        raise ValueError("must have a number up to 65535 as its port")
    given = urlsplit(url)
    if "cluster" in given.scheme and (not nodes_of(url, 1) or given.path.strip("/") not in {"", "0"}):
        raise ValueError("must be redis-cluster://<host>:<port>[,<host>:<port>…]: a cluster has one database, 0")
    if "sentinel" in given.scheme and not (nodes_of(url, 1) and SERVICE.fullmatch(given.path)):
        raise ValueError("must be redis+sentinel://<host>:<port>[,<host>:<port>…]/<service>[/<db>]")
    return url


def _broker(url: str) -> str:
    if not url.startswith(("amqp://", "amqps://")):
        raise ValueError("must begin with amqp:// or amqps://")
    return _reachable(url)


Milliseconds = Annotated[int, BeforeValidator(parse_duration)]
Target = Annotated[str, BeforeValidator(_target)]
ShardCount = Annotated[int, Field(ge=1, le=MAX_SHARDS)]


class Settings(BaseModel):
    """What can be set; durations are seconds or ISO 8601, kept as milliseconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: Annotated[str, AfterValidator(_reachable)] = Field(
        "redis://127.0.0.1:6379/0",
        description="where the ledger is: redis://, rediss://, unix://, redis-cluster://, rediss-cluster://, "
        "redis+sentinel://, leveldb:///absolute/path or memory://",
        pattern=r"^(rediss?|rediss?-cluster|redis\+sentinel|memory|unix|leveldb)://",
    )
    shards: Annotated[dict[Name, ShardCount], BeforeValidator(_shards)] = Field(
        default_factory=dict,
        description="queues of more than one shard: name to how many; each gets its part of the limits",
    )
    namespace: str = Field(
        "duecourse", description="what every key of ours begins with", pattern=r"^[A-Za-z0-9._-]{1,64}$"
    )
    targets: Annotated[dict[Name, Target], BeforeValidator(_targets), AfterValidator(_inline_is_built_in)] = Field(
        default_factory=dict,
        description="where kinds are worked: inline, lambda:<function>, sqs:<queue or URL> or amqp:<queue>",
    )
    amqp: Annotated[str, AfterValidator(_broker)] = Field(
        "", description="the broker of amqp: targets: amqp:// or amqps://"
    )
    parallel: int = Field(16, ge=1, le=256, description="how many tasks of one drain run at a time")
    lease_ms: Milliseconds = Field(
        60_000,
        alias="lease",
        ge=1_000,
        description="how long a claimed task is its worker's; longer than any target's timeout",
    )
    margin_ms: Milliseconds = Field(
        25_000,
        alias="margin",
        description="how long before its own timeout a function stops claiming; longer than an inline task may take",
    )
    http_timeout_ms: Milliseconds = Field(
        10_000,
        alias="http_timeout",
        ge=1,
        description="how long a webhook or a poll waits for its answer, unless it says otherwise",
    )
    retention_ms: Milliseconds = Field(
        86_400_000, alias="retention", description="how long a finished task can be asked for"
    )
    results_table: str = Field(
        "", description="the DynamoDB table for results; none keeps them in the ledger, for the retention"
    )
    results_retention_ms: Milliseconds = Field(
        2_592_000_000, alias="results_retention", description="how long the results table keeps a result"
    )
    mail_from: str = Field("", description="the verified sender of reminders")
    wait: int = Field(0, ge=0, le=10, description="how many replicas must have an added task before it is acknowledged")
    events: Literal["on", "off"] = Field(
        "on", description="whether rings are heard by Redis's notifications too, or by its PUBLISH and our timer alone"
    )
    tick_linger_ms: Milliseconds = Field(
        0,
        alias="tick_linger",
        description="how long poll_tick stays, from its start, to serve rings itself; 0 leaves that to a bridge",
    )
    on_expired_function: str = Field("on_expired", description="the function that the bridge invokes")
    bridge_in_flight: int = Field(4, ge=1, le=64, description="how many invocations the bridge keeps under way")

    @model_validator(mode="after")
    def _amqp_is_named(self) -> Self:
        if not self.amqp and any(target.startswith("amqp:") for target in self.targets.values()):
            raise refuse_fields("is required, for DUECOURSE_TARGETS names an amqp:<queue>", "amqp")
        return self


@cache
def load() -> Settings:
    """The settings of this process, read at the first call. Raises InvalidSettings, naming every wrong variable."""
    return parse(os.environ)


def parse(environ: Mapping[str, str]) -> Settings:
    """The settings in `environ`; an empty variable counts as unset. Raises InvalidSettings."""
    given = {k[len(PREFIX) :].lower(): v for k, v in environ.items() if k.startswith(PREFIX) and v}
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        wrong = field_errors(error.errors())
        raise InvalidSettings([FieldError(_variable(field), problem) for field, problem in wrong]) from None


def _variable(field: str) -> str:
    head, dot, rest = field.removesuffix(".[key]").partition(".")
    return PREFIX + head.upper() + dot + rest
