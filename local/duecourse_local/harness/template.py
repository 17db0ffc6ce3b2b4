"""`template.yaml` read into typed values: it is the only description of the functions.

A nested application is a template of its own, with parameters from this one and outputs for it. The stack has what
both declare.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from cfn_tools import CfnYamlLoader  # type: ignore[import-untyped]

from ..errors import TemplateError
from .aws.account import ACCOUNT, REGION, STACK
from .aws.schedule_expressions import Cadence, Never, parse_cadence
from .intrinsics import ABSENT, Addresses, Resolver, Value, attribute, is_call, named_by, ref

SQS, RABBITMQ = "sqs", "mq"
BATCH_SIZE = {SQS: 10, RABBITMQ: 100}
WINDOW_S = {SQS: 0.0, RABBITMQ: 0.5}
"""Lambda's defaults."""
POLLERS = 5
"""Number of batches of an SQS queue that Lambda works at a time to begin with."""
MAX_BATCH = 10_000
MAX_BATCH_AT_ONCE = 10
"""Maximum size of an SQS batch without a window, or from a FIFO queue."""
MAX_WINDOW_S = 300
MAX_POLLERS = 1_000
PARTIAL = "ReportBatchItemFailures"


@dataclass(frozen=True)
class Source:
    """A queue that a function reads; `arn` is SQS's queue, or the broker that has the `queue`."""

    kind: str
    arn: str
    queue: str
    batch_size: int
    window_s: float
    partial: bool
    concurrency: int
    virtual_host: str | None = None


def source_of(name: str, event: Mapping[str, Value]) -> Source | None:
    """The source of a function's event of type SQS or MQ, None for another or a disabled one. Raises TemplateError."""
    named = {"SQS": "Queue", "MQ": "Broker"}.get(event["Type"])
    return _source(name, event.get("Properties") or {}, named) if named else None


def mapped(name: str, properties: Mapping[str, Value]) -> Source | None:
    """The source of an AWS::Lambda::EventSourceMapping. Raises TemplateError."""
    return _source(name, properties, "EventSourceArn")


def _source(name: str, properties: Mapping[str, Value], named: str) -> Source | None:
    if str(properties.get("Enabled", True)).lower() == "false":
        return None
    if "FilterCriteria" in properties:
        raise TemplateError(f"the FilterCriteria of {name} are not understood by the harness")
    arn = str(properties.get(named, ""))
    kind = arn.split(":")[2] if arn.count(":") >= 5 else ""
    if kind not in BATCH_SIZE:
        raise TemplateError(f"the {named} of {name} is {arn or 'missing'}: the harness feeds from sqs and mq, by ARN")
    source = Source(
        kind=kind,
        arn=arn,
        queue=_queue(name, properties) if kind == RABBITMQ else arn.rpartition(":")[2],
        batch_size=int(_number(name, properties, "BatchSize", BATCH_SIZE[kind], 1, MAX_BATCH)),
        window_s=_number(name, properties, "MaximumBatchingWindowInSeconds", WINDOW_S[kind], 0, MAX_WINDOW_S),
        partial=PARTIAL in (properties.get("FunctionResponseTypes") or ()),
        concurrency=int(
            _number(name, properties.get("ScalingConfig") or {}, "MaximumConcurrency", POLLERS, 2, MAX_POLLERS)
        ),
        virtual_host=_virtual_host(properties.get("SourceAccessConfigurations") or ()),
    )
    return _checked(name, source)


def _checked(name: str, source: Source) -> Source:
    """The source, if Lambda would take it. Raises TemplateError."""
    gathers = source.window_s > 0 and not source.queue.endswith(".fifo")
    if source.kind == SQS and source.batch_size > MAX_BATCH_AT_ONCE and not gathers:
        wanted = "that needs a MaximumBatchingWindowInSeconds, and no FIFO queue"
        raise TemplateError(f"the BatchSize of {name} is over {MAX_BATCH_AT_ONCE}: {wanted}")
    return source


def _queue(name: str, properties: Mapping[str, Value]) -> str:
    match properties.get("Queues"):
        case [str(queue)]:
            return queue
    raise TemplateError(f"the Queues of {name} must be a list of one queue of the broker")


def _number(name: str, properties: Mapping[str, Value], field: str, default: float, least: int, most: int) -> float:
    try:
        value = float(properties.get(field, default))
    except (TypeError, ValueError):
        value = -1
    if not least <= value <= most:
        raise TemplateError(f"the {field} of {name} must be a number from {least} to {most}")
    return value


def _virtual_host(configurations: Value) -> str | None:
    return next((c["URI"] for c in configurations if c["Type"] == "VIRTUAL_HOST"), None)


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


FUNCTION = "AWS::Serverless::Function"
MAPPING = "AWS::Lambda::EventSourceMapping"
HTTP_API = "AWS::Serverless::HttpApi"
LAYER = "AWS::Serverless::LayerVersion"
NESTED = ("AWS::Serverless::Application", "AWS::CloudFormation::Stack")
OUTPUT = "Outputs."
DEFAULT_CONCURRENCY = 10
"""Maximum number of processes of a function without ReservedConcurrentExecutions, on a laptop."""
IMPLICIT = {"ServerlessHttpApi": {"Type": HTTP_API}}
"""API that SAM adds for HttpApi events that name none."""
PSEUDO = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Region": REGION,
    "AWS::Partition": "aws",
    "AWS::StackName": STACK,
    "AWS::StackId": f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/{STACK}/local",
    "AWS::URLSuffix": "amazonaws.com",
    "AWS::NotificationARNs": [],
    "AWS::NoValue": ABSENT,
}


class Template:
    """One template, its parameters and the addresses of the emulated services."""

    def __init__(self, path: Path, addresses: Addresses, parameters: Mapping[str, str] | None = None) -> None:
        self._path = path
        self._folder = path.resolve().parent
        self._raw = _read(path)
        self._addresses = addresses
        self._parameters = dict(parameters or {})
        self._resolver = Resolver(self._raw, names=self._ref, attributes=self._attribute, secret=addresses.store)

    @property
    def functions(self) -> list[Function]:
        """Every function, those of nested applications first. Raises TemplateError where two have one name."""
        own = [self._function(logical_id) for logical_id, kind in self._present() if kind == FUNCTION]
        found = [*(function for nested in self._nested.values() for function in nested.functions), *own]
        _check_names(self._path, found)
        return found

    def resources(self, *kinds: str) -> list[Resource]:
        """Every resource of these types, those of nested applications too."""
        return [
            *self._own(*kinds),
            *(resource for nested in self._nested.values() for resource in nested.resources(*kinds)),
        ]

    def output(self, name: str) -> Value:
        """Value of an output. Raises TemplateError for one that is not there."""
        found = self._raw.get("Outputs", {}).get(name)
        if found is None or not self._is_present(found):
            raise TemplateError(f"{self._path} has no output {name}")
        return self._resolver.resolve(found["Value"])

    @cached_property
    def _nested(self) -> dict[str, "Template"]:
        """Templates of the nested applications, by logical id."""
        return {id: self._application(id) for id, kind in self._present() if kind in NESTED}

    def _application(self, id: str) -> "Template":
        properties = self._properties(id)
        location = self._resolver.resolve(properties.get("Location") or properties.get("TemplateURL"))
        if not isinstance(location, str):
            raise TemplateError(
                f"{self._path}: {id}.Location must be the path of a template; the harness reads no other"
            )
        given = self._resolver.resolve(properties.get("Parameters") or {})
        # What the harness gives is for this machine, and wins over what a deployment is given.
        return Template(self._folder / location, self._addresses, {**given, **self._parameters})

    def _own(self, *kinds: str) -> list[Resource]:
        """Resources of these types of this template alone, without nested applications."""
        return [
            Resource(logical_id, kind, self._name(logical_id), self._resolver.resolve(self._properties(logical_id)))
            for logical_id, kind in self._present()
            if kind in kinds
        ]

    def _present(self) -> Iterator[tuple[str, str]]:
        for logical_id, resource in self._raw.get("Resources", {}).items():
            if self._is_present(resource):
                yield logical_id, resource["Type"]

    def _is_present(self, part: Mapping[str, Value]) -> bool:
        return "Condition" not in part or self._resolver.holds(part["Condition"])

    def _properties(self, id: str) -> Mapping[str, Value]:
        return self._resource(id).get("Properties") or {}

    def _kind(self, id: str) -> str:
        return str(self._resource(id)["Type"])

    def _resource(self, id: str) -> Mapping[str, Value]:
        found: Mapping[str, Value] | None = self._raw["Resources"].get(id, IMPLICIT.get(id))
        if found is None:
            raise TemplateError(f"{id} is referred to and is neither a parameter nor a resource")
        return found

    def _name(self, id: str) -> str:
        given = self._properties(id).get(named_by(self._kind(id)))
        name = ABSENT if given is None else self._resolver.resolve(given)
        return id if name is ABSENT else str(name)

    def _ref(self, name: str) -> Value:
        if name in PSEUDO:
            return PSEUDO[name]
        if name in self._raw.get("Parameters", {}):
            return self._parameter(name)
        return ref(self._kind(name), self._name(name), self._addresses)

    def _attribute(self, id: str, wanted: str) -> Value:
        if self._kind(id) in NESTED and wanted.startswith(OUTPUT):
            return self._nested[id].output(wanted.removeprefix(OUTPUT))
        return attribute(self._kind(id), self._name(id), wanted, self._addresses)

    def _parameter(self, name: str) -> Value:
        declared = self._raw["Parameters"][name]
        value = self._parameters.get(name, declared.get("Default"))
        if value is None:
            raise TemplateError(f"the template's parameter {name} has no default and was given no value")
        many = declared["Type"] == "CommaDelimitedList" or declared["Type"].startswith("List<")
        return [item.strip() for item in str(value).split(",") if item.strip()] if many else value

    def _function(self, logical_id: str) -> Function:
        properties = merged(self._raw.get("Globals", {}).get("Function", {}), self._properties(logical_id))

        def read(name: str, default: Value = None) -> Value:
            value = self._resolver.resolve(properties.get(name))
            return default if value is None or value is ABSENT else value

        events = read("Events", {}).items()
        return Function(
            logical_id=logical_id,
            name=self._name(logical_id),
            code=self._code(logical_id, read("CodeUri", ".")),
            handler=read("Handler"),
            runtime=read("Runtime", "python3.11"),
            memory_mb=int(read("MemorySize", 128)),
            timeout=float(read("Timeout", 3)),
            concurrency=int(read("ReservedConcurrentExecutions", DEFAULT_CONCURRENCY)),
            reserved=read("ReservedConcurrentExecutions") is not None,
            environment=logging_variables(read("LoggingConfig", {}))
            | {name: text_of(value) for name, value in read("Environment", {}).get("Variables", {}).items()},
            layers=self._layers(read("Layers", [])),
            routes=(*(route_of(e) for _, e in events if e["Type"] == "HttpApi"), *self._defined(logical_id)),
            schedules=tuple(s for name, e in events if (s := schedule_of(logical_id + name, e))),
            async_policy=async_policy_of(read("EventInvokeConfig", {})),
            sources=(
                *(found for name, e in events if (found := source_of(logical_id + name, e))),
                *self._mapped(logical_id),
            ),
        )

    def _defined(self, function: str) -> Iterator[Route]:
        """Routes that definitions of HTTP APIs lead to the function."""
        for api in self._own(HTTP_API):
            yield from routes_to(self._name(function), api.properties.get("DefinitionBody") or {})

    def _mapped(self, function: str) -> Iterator[Source]:
        """Sources that the template declares as resources of their own."""
        name = self._name(function)
        for mapping in self._own(MAPPING):
            # Its name or its ARN, perhaps with an alias.
            meant = str(mapping.properties.get("FunctionName", "")).rpartition("function:")[2].partition(":")[0]
            if meant == name and (s := mapped(mapping.name, mapping.properties)):
                yield s

    def _code(self, logical_id: str, uri: Value) -> Path:
        if not isinstance(uri, str) or uri.startswith("s3://"):
            problem = f"is no folder of this machine, whose code alone the harness runs: {text_of(uri)}"
            raise TemplateError(f"the CodeUri of {logical_id} {problem}")
        folder = (self._folder / uri).resolve()
        if not folder.is_dir():
            raise TemplateError(f"the CodeUri of {logical_id} is no folder: {folder}")
        return folder

    def _layers(self, names: list[Value]) -> tuple[Path, ...]:
        layers = [self._folder / layer.properties["ContentUri"] for layer in self._own(LAYER) if layer.name in names]
        return tuple((p / "python" if (p / "python").is_dir() else p).resolve() for p in layers)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """CfnYamlLoader with libyaml's parser where PyYAML has it: ten times as fast."""

    yaml_constructors = CfnYamlLoader.yaml_constructors
    yaml_multi_constructors = CfnYamlLoader.yaml_multi_constructors


def load_yaml(text: str) -> Mapping[str, Any]:
    """A template's text as values, with each short call (!Ref) in its long form. Raises ValueError and YAMLError."""
    found: Mapping[str, Any] = yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    return found


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = load_yaml(path.read_text())  # JSON too, which YAML contains
    except OSError as error:
        raise TemplateError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, yaml.YAMLError) as error:
        raise TemplateError(f"{path} is neither YAML nor JSON: {error}") from None
    return found


def _check_names(path: Path, functions: list[Function]) -> None:
    counted = Counter(function.name for function in functions)
    twice = sorted(name for name, count in counted.items() if count > 1)
    if twice:
        raise TemplateError(f"{path} and its nested applications have two functions {twice[0]}: rename yours")


def merged(shared: Value, own: Value) -> Value:
    """A function's properties over the Globals section's, as SAM does it: mappings merged, lists joined."""
    if isinstance(shared, list) and isinstance(own, list):
        return [*shared, *own]
    if isinstance(shared, Mapping) and isinstance(own, Mapping) and not (is_call(shared) or is_call(own)):
        both = {name: merged(shared[name], own[name]) for name in shared if name in own}
        return {**shared, **own, **both}
    return own
