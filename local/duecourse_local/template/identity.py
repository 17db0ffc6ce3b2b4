"""Names of a template's resources once they exist: the answers to Ref and GetAtt."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..aws.account import ACCOUNT, arn


class Addresses(NamedTuple):
    """URLs of the emulated services."""

    api: str
    aws: str
    store: str


class Kind(NamedTuple):
    """A resource type: the property that names it, what Ref gives, and its attributes, each made from that name."""

    named_by: str
    ref: Callable[[str, Addresses], str]
    attributes: Mapping[str, Callable[[str, Addresses], str]]


def _name(name: str, _: Addresses) -> str:
    return name


def _arn(service: str, prefix: str = "") -> Callable[[str, Addresses], str]:
    return lambda name, _: arn(service, prefix + name)


def _queue_url(name: str, addresses: Addresses) -> str:
    return f"{addresses.aws}/{ACCOUNT}/{name}"


_TABLE = Kind("TableName", _name, {"Arn": _arn("dynamodb", "table/")})

KINDS: dict[str, Kind] = {
    "AWS::Serverless::Function": Kind("FunctionName", _name, {"Arn": _arn("lambda", "function:")}),
    "AWS::Serverless::LayerVersion": Kind("LayerName", _name, {}),
    "AWS::Serverless::HttpApi": Kind("Name", _name, {"ApiEndpoint": lambda _, addresses: addresses.api}),
    "AWS::DynamoDB::Table": _TABLE,
    "AWS::Serverless::SimpleTable": _TABLE,
    "AWS::SNS::Topic": Kind("TopicName", _arn("sns"), {"TopicArn": _arn("sns"), "TopicName": _name}),
    "AWS::SQS::Queue": Kind("QueueName", _queue_url, {"Arn": _arn("sqs"), "QueueName": _name, "QueueUrl": _queue_url}),
    "AWS::KMS::Key": Kind("KeyId", _name, {"Arn": _arn("kms", "key/")}),
    "AWS::SES::EmailIdentity": Kind("EmailIdentity", _name, {}),
}


def ref(kind: str, name: str, addresses: Addresses) -> Any:
    """Value of Ref for a resource of type `kind` called `name`."""
    return KINDS[kind].ref(name, addresses) if kind in KINDS else name


def attribute(kind: str, name: str, wanted: str, addresses: Addresses) -> str:
    """Value of GetAtt; for types that the harness does not make, a text that at least names the resource."""
    found = KINDS[kind].attributes.get(wanted) if kind in KINDS else None
    return found(name, addresses) if found else f"{name}.{wanted}"


def named_by(kind: str) -> str:
    """The property that names a resource of type `kind`, "" if none does."""
    return KINDS[kind].named_by if kind in KINDS else ""
