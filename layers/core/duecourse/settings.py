"""Every setting, as the environment says it: the names are the fields with the prefix `DUECOURSE_`."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from duecourse.domain.address import WITHOUT_BELLS, check_servers, check_store, split
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
SPEAKING = {"warm"}
"""Settings whose empty value means something: off."""
NAMESPACE = re.compile(r"[A-Za-z0-9._-]{1,64}")
DEFAULT_LEASE_MS = 90_000
"""Longer than the longest timeout of a function in the template, whose parameter has the same default."""
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
        raise ValueError(
            "must be lambda:<function>, sqs:<queue> or amqp:<queue>: inline cannot receive notifications of dead tasks"
        )
    return value and _target(value)


def _worked_where_they_can_be(targets: dict[str, str]) -> dict[str, str]:
    strangers = [kind for kind, target in targets.items() if target == "inline" and kind not in BUILT_IN]
    if strangers:
        raise ValueError(f"only {', '.join(BUILT_IN)} can be inline: give {', '.join(strangers)} another target")
    reserved = [kind for kind in targets if kind.startswith(RESERVED)]
    if reserved:
        raise ValueError(f"{RESERVED}… is reserved for completion notifications: rename {', '.join(reserved)}")
    if targets.get(POLL, "").startswith(("sqs:", "amqp:")):
        raise refuse_fields("must be inline or lambda:<function>: a broker's confirm would count as the answer", POLL)
    return targets


def _broker(url: str) -> str:
    if not url.startswith(("amqp://", "amqps://")):
        raise ValueError("must begin with amqp:// or amqps://")
    check_servers(url)
    user, colon, _ = (split(url).login or "").partition(":")
    if user and not colon:
        raise ValueError("must have a password beside its user: amqps://user:password@host")
    return url


def _off_or_duration(value: Any) -> int:
    return 0 if value == "" else parse_duration(value)


Milliseconds = Annotated[int, BeforeValidator(parse_duration)]
Target = Annotated[str, AfterValidator(_target)]
ShardCount = Annotated[int, Field(ge=1, le=MAX_SHARDS)]


class Settings(BaseModel):
    """Settings, from environment variables. Durations are seconds or ISO 8601, kept as milliseconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: Annotated[str, AfterValidator(check_store)] = Field(
        "redis://127.0.0.1:6379/0",
        description="URL of the store: redis://, rediss://, unix://, redis-cluster://, rediss-cluster://, "
        "redis+sentinel://, leveldb:///absolute/path or memory://.",
    )
    shards: Annotated[dict[Name, ShardCount], _json_such_as('{"default": 8}')] = Field(
        default_factory=dict,
        description="Number of shards for each queue that has more than one, as JSON; limits are divided among them.",
    )
    namespace: Annotated[str, written_as(NAMESPACE, "must be 1 to 64 characters of A-Z a-z 0-9 . _ -")] = Field(
        "duecourse", description="Prefix of every key in Redis."
    )
    targets: Annotated[
        dict[Name, Target],
        _json_such_as('{"report": "lambda:ReportFunction"}'),
        AfterValidator(_worked_where_they_can_be),
    ] = Field(
        default_factory=dict,
        description="Target of each kind, as JSON: inline, lambda:<function>, sqs:<queue or URL> or amqp:<queue>.",
    )
    dead_target: Annotated[str, BeforeValidator(_dead_target)] = Field(
        "",
        description="Target that receives a notification for each dead task: lambda:<function>, sqs:<queue or "
        "URL> or amqp:<queue>. Give all processes the same value.",
    )
    amqp: Annotated[str, AfterValidator(_broker)] = Field(
        "", description="URL of the RabbitMQ broker for amqp: targets: amqp:// or amqps://."
    )
    parallel: int = Field(
        16, ge=1, le=256, description="Maximum number of tasks that one drain runs at the same time, 1 to 256."
    )
    query_parallel: int = Field(
        4,
        ge=1,
        le=256,
        description="Maximum number of concurrent queries to one host, 1 to 256, unless the host's queue "
        "sets another limit.",
    )
    lease_ms: Annotated[Milliseconds, _at_least(1_000)] = Field(
        DEFAULT_LEASE_MS,
        alias="lease",
        description="Length of an inline task's lease, at least PT1S; "
        "longer than the timeout of each function that claims tasks.",
    )
    delivery_lease_ms: Annotated[Milliseconds, _at_least(1_000)] = Field(
        300_000,
        alias="delivery_lease",
        description="Time that a function has to begin a task handed to it, at least PT1S. "
        "Longer than the maximum age of its events plus its timeout.",
    )
    outstanding: int = Field(
        100,
        ge=1,
        le=10_000,
        description="Maximum number of tasks of one shard that a function has and has not begun, 1 to 10000.",
    )
    margin_ms: Milliseconds = Field(
        25_000,
        alias="margin",
        description="Time before its own timeout at which a function stops claiming tasks; longer than any "
        "inline task takes.",
    )
    http_timeout_ms: Annotated[Milliseconds, _at_least(1)] = Field(
        10_000,
        alias="http_timeout",
        description="Timeout of one request of a webhook or poll that sets none.",
    )
    retention_ms: Milliseconds = Field(DAY_MS, alias="retention", description="Time for which a finished task is kept.")
    dead_retention_ms: Milliseconds = Field(
        30 * DAY_MS,
        alias="dead_retention",
        description="Time for which a dead task is kept, counted from the first tick that knows this setting.",
    )
    results_table: str = Field(
        "",
        description="Name of the DynamoDB table for results. Empty: results are kept in the store, for the retention.",
    )
    results_retention_ms: Milliseconds = Field(
        30 * DAY_MS, alias="results_retention", description="Time for which the results table keeps a result."
    )
    mail_from: str = Field("", description="Sender address of reminders, verified in SES.")
    tenant_header: str = Field(
        "",
        description="Header that names the tenant of a request; for local stacks only, since callers choose its value.",
        pattern=r"^[A-Za-z0-9-]{0,64}$",
    )
    sms_from: Annotated[
        str,
        written_as(
            SMS_FROM, "must be a number such as +436641234567, or 1 to 11 letters and digits, a letter among them"
        ),
    ] = Field(
        "",
        description="Sender of SMS: your number in SNS (+436641234567) or a sender name (Duecourse).",
    )
    wait: int = Field(
        0,
        ge=0,
        le=10,
        description="Number of replicas that must have an add, a move, a cancel, a replay or a queue's settings "
        "before the request succeeds, 0 to 10.",
    )
    events: Literal["on", "off"] = Field(
        "on",
        description="Use of Redis's key event notifications: on, or off for PUBLISH and duecourse's own timer alone.",
    )
    tick_linger_ms: Milliseconds = Field(
        0,
        alias="tick_linger",
        description="Time for which each tick lingers, from its start, to serve rings itself; 0 leaves that to "
        "a bridge.",
    )
    watch: Annotated[
        list[WatchSetting], _json_such_as('[{"pattern": "send_message-{user}-{type}", "kind": "report"}]')
    ] = Field(
        default_factory=list,
        description="Keys of other programs whose expiry becomes a task, as JSON: pattern, kind, payload, "
        "window (PT1S), queue.",
    )
    log_tasks: Literal["on", "off"] = Field(
        "off",
        description="Write one log line for each task that is added, claimed, settled, moved or cancelled: on or off.",
    )
    on_expired_function: str = Field("on_expired", description="Name of the function that the bridge invokes.")
    bridge_in_flight: int = Field(
        4, ge=1, le=64, description="Maximum number of concurrent invocations by the bridge, 1 to 64."
    )
    warm_ms: Annotated[int, BeforeValidator(_off_or_duration)] = Field(
        10_000,
        alias="warm",
        description="Time before a bell at which functions that were idle are warmed; an empty value turns that off.",
    )
    warm_idle_ms: Annotated[Milliseconds, _at_least(1_000)] = Field(
        5 * 60_000,
        alias="warm_idle",
        description="Time without an invocation after which a function counts as idle.",
    )

    @model_validator(mode="after")
    def _amqp_is_named(self) -> Self:
        named = {"DUECOURSE_TARGETS": list(self.targets.values()), "DUECOURSE_DEAD_TARGET": [self.dead_target]}
        for variable, targets in named.items():
            if not self.amqp and any(target.startswith("amqp:") for target in targets):
                raise refuse_fields(f"is required because {variable} names an amqp:<queue>", "amqp")
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
            raise refuse_fields(
                "requires a Redis as DUECOURSE_STORE: no other program sets keys in this store", "watch"
            )
        if self.watch and self.events == "off":
            problem = "requires DUECOURSE_EVENTS=on: only key events announce that a key expired"
            raise refuse_fields(problem, "watch")
        return self

    @model_validator(mode="after")
    def _watched_keys_are_others(self) -> Self:
        ours = f"{self.namespace}:".encode()
        prefixes = [Pattern(one.pattern).prefix for one in self.watch]
        clash = [i for i, prefix in enumerate(prefixes) if prefix.startswith(ours) or ours.startswith(prefix)]
        if clash:
            problem = f"would match duecourse's own keys, which begin with {ours.decode()}: choose another beginning"
            raise refuse_fields(problem, *(f"watch.{i}.pattern" for i in clash))
        return self

    @model_validator(mode="after")
    def _warming_is_shorter_than_idling(self) -> Self:
        if self.warm_ms >= self.warm_idle_ms:
            raise refuse_fields("must be shorter than DUECOURSE_WARM_IDLE", "warm")
        return self

    @model_validator(mode="after")
    def _watches_can_be_kept(self) -> Self:
        patterns = [one.pattern for one in self.watch]
        again = [i for i, pattern in enumerate(patterns) if pattern in patterns[:i]]
        if again:
            raise refuse_fields(
                "repeats an earlier pattern: only the first one would count", *(f"watch.{i}.pattern" for i in again)
            )
        long = [i for i, one in enumerate(self.watch) if one.window_ms > self.retention_ms]
        if long:
            problem = "is longer than DUECOURSE_RETENTION: by then the task that it is compared with is forgotten"
            raise refuse_fields(problem, *(f"watch.{i}.window" for i in long))
        return self


def parse(environ: Mapping[str, str]) -> Settings:
    """The settings in `environ`; an empty variable counts as unset, but for SPEAKING. Raises InvalidSettings."""
    named = {k[len(PREFIX) :].lower(): v for k, v in environ.items() if k.startswith(PREFIX)}
    given = {name: value for name, value in named.items() if value or name in SPEAKING}
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        wrong = field_errors(error.errors())
        raise InvalidSettings([FieldError(_variable(field), problem) for field, problem in wrong]) from None


def _variable(field: str) -> str:
    head, dot, rest = field.removesuffix(".[key]").partition(".")
    return PREFIX + head.upper() + dot + rest
