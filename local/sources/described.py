"""What a template says of the queues that functions read."""

from collections.abc import Mapping
from dataclasses import dataclass

from local.intrinsics import Value
from local.problems import TemplateError

SQS, RABBITMQ = "sqs", "mq"
BATCH_SIZE = {SQS: 10, RABBITMQ: 100}
WINDOW_S = {SQS: 0.0, RABBITMQ: 0.5}
"""Lambda's defaults."""
POLLERS = 5
"""How many batches of an SQS queue Lambda has under way to begin with."""
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
    properties = event.get("Properties") or {}
    if event["Type"] == "SQS":
        return _source(name, properties, properties["Queue"])
    if event["Type"] == "MQ":
        return _source(name, properties, properties["Broker"])
    return None


def mapped(name: str, properties: Mapping[str, Value]) -> Source | None:
    """The source of an AWS::Lambda::EventSourceMapping. Raises TemplateError."""
    return _source(name, properties, properties["EventSourceArn"])


def _source(name: str, properties: Mapping[str, Value], arn: str) -> Source | None:
    if properties.get("Enabled") is False:
        return None
    if "FilterCriteria" in properties:
        raise TemplateError(f"the FilterCriteria of {name} are not understood by the harness")
    kind = str(arn).split(":")[2] if str(arn).count(":") >= 5 else ""
    if kind not in BATCH_SIZE:
        raise TemplateError(f"{name} reads {arn}: the harness feeds from sqs and mq")
    [queue] = properties["Queues"] if kind == RABBITMQ else [arn.rpartition(":")[2]]
    return Source(
        kind=kind,
        arn=arn,
        queue=queue,
        batch_size=int(properties.get("BatchSize", BATCH_SIZE[kind])),
        window_s=float(properties.get("MaximumBatchingWindowInSeconds", WINDOW_S[kind])),
        partial=PARTIAL in properties.get("FunctionResponseTypes", ()),
        concurrency=int(properties.get("ScalingConfig", {}).get("MaximumConcurrency", POLLERS)),
        virtual_host=_virtual_host(properties.get("SourceAccessConfigurations", ())),
    )


def _virtual_host(configurations: Value) -> str | None:
    return next((c["URI"] for c in configurations if c["Type"] == "VIRTUAL_HOST"), None)
