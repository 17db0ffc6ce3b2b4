"""Every setting, as the environment says it: the names are the fields with the prefix `DUECOURSE_`."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from duecourse.domain.address import WITHOUT_BELLS, check_ports, check_store
from duecourse.domain.follow_up import RESERVED
from duecourse.domain.query import KIND as POLL
from duecourse.domain.query import QUEUE_PREFIX
from duecourse.domain.shards import MAX_SHARDS
from duecourse.domain.times import DAY_MS, format_duration, parse_duration
from duecourse.domain.watch import Pattern
from duecourse.errors import FieldError, InvalidSettings
from duecourse.wire import doubled
from duecourse.wire.fields import Name, field_errors, refuse_fields, written_as
from duecourse.wire.watches import WatchSetting

PREFIX = "DUECOURSE_"
BUILT_IN = ("poll", "webhook", "reminder")
SMS_FROM = re.compile(r"\+[1-9]\d{6,14}|\d{5,6}|(?=.*[A-Za-z])[A-Za-z0-9]{1,11}", re.ASCII)
NAMESPACE = re.compile(r"[A-Za-z0-9._-]{1,64}")
TARGET = re.compile(
    r"inline|lambda:[A-Za-z0-9_.:-]{1,170}|sqs:([A-Za-z0-9_-]{1,75}(\.fifo)?|https?://[!-~]{1,500})|amqp:[!-~]{1,255}"
)


def _json_such_as(example: str) -> BeforeValidator:
    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            found, twice = doubled.load(value)
        except (ValueError, RecursionError):
            raise ValueError(f"must be JSON such as {example}") from None
        if twice:
            raise refuse_fields(doubled.PROBLEM, *(error.field for error in twice))
        return found

    return BeforeValidator(read)


def _at_least(low_ms: int) -> AfterValidator:
    def check(value: int) -> int:
        if value < low_ms:
            raise ValueError(f"must be at least {format_duration(low_ms)}")
        return value

    return AfterValidator(check)


def _target(value: str) -> str:
    if not TARGET.fullmatch(value):
        raise ValueError("must be inline, lambda:<function>, sqs:<queue> or amqp:<queue>")
    return value


def _dead_target(value: str) -> str:
    if value == "inline":
        raise ValueError("must be lambda:<function>, sqs:<queue> or amqp:<queue>: nothing inline takes the dead")
    return value and _target(value)


def _worked_where_they_can_be(targets: dict[str, str]) -> dict[str, str]:
    strangers = [kind for kind, target in targets.items() if target == "inline" and kind not in BUILT_IN]
    if strangers:
        raise ValueError(f"only {', '.join(BUILT_IN)} can be inline: give {', '.join(strangers)} another target")
    reserved = [kind for kind in targets if kind.startswith(RESERVED)]
    if reserved:
        raise ValueError(f"{RESERVED}… is for what tells of tasks: call {', '.join(reserved)} otherwise")
    if targets.get(POLL, "").startswith(("sqs:", "amqp:")):
        raise refuse_fields("must be inline or lambda:<function>: a broker's confirm would count as the answer", POLL)
    return targets


def _broker(url: str) -> str:
    if not url.startswith(("amqp://", "amqps://")):
        raise ValueError("must begin with amqp:// or amqps://")
    check_ports(url)
    if urlsplit(url).username and urlsplit(url).password is None:
        raise ValueError("must have a password beside its user: amqps://user:password@host")
    return url


Milliseconds = Annotated[int, BeforeValidator(parse_duration)]
Target = Annotated[str, AfterValidator(_target)]
ShardCount = Annotated[int, Field(ge=1, le=MAX_SHARDS)]


class Settings(BaseModel):
    """What can be set; durations are seconds or ISO 8601, kept as milliseconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: Annotated[str, AfterValidator(check_store)] = Field(
        "redis://127.0.0.1:6379/0",
        description="where the ledger is: redis://, rediss://, unix://, redis-cluster://, rediss-cluster://, "
        "redis+sentinel://, leveldb:///absolute/path or memory://",
    )
    shards: Annotated[dict[Name, ShardCount], _json_such_as('{"default": 8}')] = Field(
        default_factory=dict,
        description="queues of more than one shard: name to how many; each gets its part of the limits",
    )
    namespace: Annotated[str, written_as(NAMESPACE, "must be 1 to 64 characters of A-Z a-z 0-9 . _ -")] = Field(
        "duecourse", description="what every key of ours begins with"
    )
    targets: Annotated[
        dict[Name, Target],
        _json_such_as('{"report": "lambda:ReportFunction"}'),
        AfterValidator(_worked_where_they_can_be),
    ] = Field(
        default_factory=dict,
        description="where kinds are worked: inline, lambda:<function>, sqs:<queue or URL> or amqp:<queue>",
    )
    dead_target: Annotated[str, BeforeValidator(_dead_target)] = Field(
        "",
        description="who is told of each task that dies: lambda:<function>, sqs:<queue or URL> or amqp:<queue>; "
        "the same wherever tasks are claimed and settled",
    )
    amqp: Annotated[str, AfterValidator(_broker)] = Field(
        "", description="the broker of amqp: targets: amqp:// or amqps://"
    )
    parallel: int = Field(16, ge=1, le=256, description="how many tasks of one drain run at a time")
    query_parallel: int = Field(
        4,
        ge=1,
        le=256,
        description="how many queries call one host at a time, where PATCH /queues has not set its queue otherwise",
    )
    lease_ms: Annotated[Milliseconds, _at_least(1_000)] = Field(
        60_000,
        alias="lease",
        description="how long a claimed task is its worker's; longer than any target's timeout",
    )
    margin_ms: Milliseconds = Field(
        25_000,
        alias="margin",
        description="how long before its own timeout a function stops claiming; longer than an inline task may take",
    )
    http_timeout_ms: Annotated[Milliseconds, _at_least(1)] = Field(
        10_000,
        alias="http_timeout",
        description="how long a webhook, or a poll that does not say otherwise, waits for its answer",
    )
    retention_ms: Milliseconds = Field(
        DAY_MS, alias="retention", description="how long a finished task can be asked for"
    )
    results_table: str = Field(
        "", description="the DynamoDB table for results; none keeps them in the ledger, for the retention"
    )
    results_retention_ms: Milliseconds = Field(
        30 * DAY_MS, alias="results_retention", description="how long the results table keeps a result"
    )
    mail_from: str = Field("", description="the verified sender of reminders")
    tenant_header: str = Field(
        "",
        description="the header that says whose a request is; only where whoever can call may be anyone, on a laptop",
        pattern=r"^[A-Za-z0-9-]{0,64}$",
    )
    sms_from: Annotated[
        str,
        written_as(
            SMS_FROM, "must be a number such as +436641234567, or 1 to 11 letters and digits, a letter among them"
        ),
    ] = Field(
        "",
        description="whom an SMS comes from: a number of yours in SNS (+436641234567), or a sender's name (Duecourse)",
    )
    wait: int = Field(0, ge=0, le=10, description="how many replicas must have an added task before it is acknowledged")
    events: Literal["on", "off"] = Field(
        "on", description="whether rings are heard by Redis's notifications too, or by its PUBLISH and our timer alone"
    )
    tick_linger_ms: Milliseconds = Field(
        0,
        alias="tick_linger",
        description="how long poll_tick stays, from its start, to serve rings itself; 0 leaves that to a bridge",
    )
    watch: Annotated[
        list[WatchSetting], _json_such_as('[{"pattern": "send_message-{user}-{type}", "kind": "report"}]')
    ] = Field(
        default_factory=list,
        description="keys of other programs whose expiry becomes a task: pattern, kind, payload, window (PT1S), queue",
    )
    on_expired_function: str = Field("on_expired", description="the function that the bridge invokes")
    bridge_in_flight: int = Field(4, ge=1, le=64, description="how many invocations the bridge keeps under way")

    @model_validator(mode="after")
    def _amqp_is_named(self) -> Self:
        named = {"DUECOURSE_TARGETS": list(self.targets.values()), "DUECOURSE_DEAD_TARGET": [self.dead_target]}
        for variable, targets in named.items():
            if not self.amqp and any(target.startswith("amqp:") for target in targets):
                raise refuse_fields(f"is required, for {variable} names an amqp:<queue>", "amqp")
        return self

    @model_validator(mode="after")
    def _queries_have_a_part_in_each_shard(self) -> Self:
        if any(name.startswith(QUEUE_PREFIX) and count > self.query_parallel for name, count in self.shards.items()):
            problem = f"must give {QUEUE_PREFIX}… no more shards than DUECOURSE_QUERY_PARALLEL: each gets its part"
            raise refuse_fields(problem, "shards")
        return self

    @model_validator(mode="after")
    def _watched_keys_can_be_heard(self) -> Self:
        if self.watch and self.store.partition("://")[0] in WITHOUT_BELLS:
            raise refuse_fields("wants a Redis as DUECOURSE_STORE: no other program sets keys in this one", "watch")
        if self.watch and self.events == "off":
            problem = "wants DUECOURSE_EVENTS=on: that a key expired is told by Redis's notifications alone"
            raise refuse_fields(problem, "watch")
        return self

    @model_validator(mode="after")
    def _watched_keys_are_others(self) -> Self:
        ours = f"{self.namespace}:".encode()
        prefixes = [Pattern(one.pattern).prefix for one in self.watch]
        clash = [i for i, prefix in enumerate(prefixes) if prefix.startswith(ours) or ours.startswith(prefix)]
        if clash:
            problem = f"would match keys of ours, which begin with {ours.decode()}: begin it otherwise"
            raise refuse_fields(problem, *(f"watch.{i}.pattern" for i in clash))
        return self

    @model_validator(mode="after")
    def _watches_can_be_kept(self) -> Self:
        patterns = [one.pattern for one in self.watch]
        again = [i for i, pattern in enumerate(patterns) if pattern in patterns[:i]]
        if again:
            raise refuse_fields("stands there already, and the first wins", *(f"watch.{i}.pattern" for i in again))
        long = [i for i, one in enumerate(self.watch) if one.window_ms > self.retention_ms]
        if long:
            problem = "is longer than DUECOURSE_RETENTION: by then the task that it is compared with is forgotten"
            raise refuse_fields(problem, *(f"watch.{i}.window" for i in long))
        return self


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
