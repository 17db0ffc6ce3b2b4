"""Content of a template, as typed values."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..aws.cadence import Cadence, Never, parse_cadence
from ..aws.sources.described import Source
from ..stack.problems import TemplateError
from .intrinsics import Value

LOG_FORMAT, LOG_LEVEL, LOG_GROUP = "AWS_LAMBDA_LOG_FORMAT", "AWS_LAMBDA_LOG_LEVEL", "AWS_LAMBDA_LOG_GROUP_NAME"
INTEGRATION, ANY_METHOD = "x-amazon-apigateway-integration", "x-amazon-apigateway-any-method"


@dataclass(frozen=True)
class Route:
    """Route of an HTTP API to a function: `GET /tasks/{id}`; method ANY and path `$default` are the catch-alls."""

    method: str
    path: str

    @property
    def key(self) -> str:
        """The route key, as events carry it."""
        return self.path if self.path == "$default" else f"{self.method} {self.path}"


@dataclass(frozen=True)
class Schedule:
    """Schedule of a function; `input` is the event in place of the default one."""

    name: str
    cadence: Cadence
    scheduler: bool
    input: str | None

    @property
    def problem(self) -> str:
        """Reason why it never fires; "" for none."""
        return f"{self.name}: {self.cadence.problem}" if isinstance(self.cadence, Never) else ""


@dataclass(frozen=True)
class AsyncPolicy:
    """Policy for asynchronous invocations that fail; destinations are ARNs."""

    retries: int = 2
    max_age_s: float = 21_600
    on_success: str | None = None
    on_failure: str | None = None


@dataclass(frozen=True)
class Function:
    """One function as the template describes it; memory in MB, timeout in seconds."""

    logical_id: str
    name: str
    code: Path
    handler: str
    runtime: str
    memory_mb: int
    timeout: float
    concurrency: int
    environment: Mapping[str, str]
    layers: tuple[Path, ...]
    routes: tuple[Route, ...]
    schedules: tuple[Schedule, ...]
    async_policy: AsyncPolicy
    sources: tuple[Source, ...] = ()
    packages: Path | None = None
    """Folder of what its requirements.txt lists."""
    reserved: bool = False
    """True where the template sets `concurrency`: Lambda then throttles what comes beyond it."""

    @property
    def log_group(self) -> str:
        """Name of its log group on AWS: that of its LoggingConfig, else Lambda's own."""
        return self.environment.get(LOG_GROUP, f"/aws/lambda/{self.name}")


@dataclass(frozen=True)
class Resource:
    """Something else that the template declares, its properties resolved."""

    logical_id: str
    kind: str
    name: str
    properties: Mapping[str, Value]


def logging_variables(config: Mapping[str, str]) -> dict[str, str]:
    """Variables in which Lambda hands a function its LoggingConfig.

    Lambda's default level is INFO for the JSON format. In the text format it has none, and Python's own is WARNING.
    """
    level = {"ApplicationLogLevel": "INFO"} if str(config.get("LogFormat", "")).upper() == "JSON" else {}
    given = {**level, **config}
    named = {LOG_FORMAT: "LogFormat", LOG_LEVEL: "ApplicationLogLevel", LOG_GROUP: "LogGroup"}
    return {variable: given[name] for variable, name in named.items() if name in given}


def text_of(value: Value) -> str:
    """An environment variable's value."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def route_of(event: Mapping[str, Value]) -> Route:
    """The route of an HttpApi event."""
    properties = event.get("Properties") or {}
    return Route(properties.get("Method", "ANY").upper(), properties.get("Path", "$default"))


def routes_to(function: str, definition: Mapping[str, Value]) -> Iterator[Route]:
    """The routes of an API's OpenAPI definition that lead to a function."""
    for path, operations in (definition.get("paths") or {}).items():
        for method, operation in operations.items():
            uri = (operation.get(INTEGRATION) or {}).get("uri", "")
            if uri.endswith(f":function:{function}/invocations"):
                yield Route("ANY" if method == ANY_METHOD else method.upper(), path)


def schedule_of(name: str, event: Mapping[str, Value]) -> Schedule | None:
    """The schedule of an event, None where it has none or is disabled."""
    properties = event.get("Properties") or {}
    expression = {"Schedule": "Schedule", "ScheduleV2": "ScheduleExpression"}.get(event["Type"])
    if expression is None or properties.get("Enabled") is False or properties.get("State") == "DISABLED":
        return None
    given, scheduler = properties.get("Input"), event["Type"] == "ScheduleV2"
    return Schedule(
        name=properties.get("Name", name),
        cadence=_cadence(expression, properties, scheduler=scheduler),
        scheduler=scheduler,
        input=given if given is None or isinstance(given, str) else json.dumps(given),
    )


def _cadence(field: str, properties: Mapping[str, Value], *, scheduler: bool) -> Cadence:
    """The cadence of an event: Never where AWS would reject it, for the other functions run all the same."""
    zone = properties.get("ScheduleExpressionTimezone", "UTC") if scheduler else "UTC"
    try:
        return parse_cadence(properties.get(field), zone, scheduler=scheduler)
    except TemplateError as error:
        return Never(f"{field} {properties.get(field)}: {error}")


def async_policy_of(config: Mapping[str, Value]) -> AsyncPolicy:
    """Policy of an EventInvokeConfig."""
    destinations = config.get("DestinationConfig", {})
    return AsyncPolicy(
        retries=int(config.get("MaximumRetryAttempts", AsyncPolicy.retries)),
        max_age_s=float(config.get("MaximumEventAgeInSeconds", AsyncPolicy.max_age_s)),
        on_success=destinations.get("OnSuccess", {}).get("Destination"),
        on_failure=destinations.get("OnFailure", {}).get("Destination"),
    )
