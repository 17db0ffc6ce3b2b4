"""Description of the queues that functions read, from a template."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...stack.problems import TemplateError
from ...template.intrinsics import Value

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
