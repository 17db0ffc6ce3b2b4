"""Creates on the emulator what the template declares besides functions."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from localstack_client.session import Session  # type: ignore[import-untyped]

from ..stack.problems import HarnessError
from ..template.model import Resource
from ..template.reader import Template
from .emulator import session as emulator_session

Properties = Mapping[str, Any]
EXISTS = {"ResourceInUseException", "AlreadyExistsException"}
TABLE_PARTS = (
    "AttributeDefinitions",
    "KeySchema",
    "BillingMode",
    "ProvisionedThroughput",
    "GlobalSecondaryIndexes",
    "LocalSecondaryIndexes",
    "StreamSpecification",
)
SIMPLE_TYPES = {"String": "S", "Number": "N", "Binary": "B"}


def create(template: Template, aws: str) -> list[str]:
    """Create on the emulator every resource of a known type, and return all their names; existing ones stay.

    Raises HarnessError where the emulator does not answer, or rejects one.
    """
    # A queue that has a dead-letter queue wants that to be there.
    resources = sorted(template.resources(*MAKERS), key=lambda resource: "RedrivePolicy" in resource.properties)
    session = emulator_session(aws)
    for resource in resources:
        _create(session, resource, aws)
    return [resource.name for resource in resources]


def _create(session: Session, resource: Resource, aws: str) -> None:
    try:
        MAKERS[resource.kind](session, resource)
    except (BotoCoreError, ClientError, ValueError) as error:
        known = isinstance(error, ClientError) and error.response["Error"]["Code"] in EXISTS
        if not known:
            raise HarnessError(f"{resource.name} cannot be created by the AWS services at {aws}: {error}") from error


def _table(session: Session, resource: Resource) -> None:
    parts = {name: resource.properties[name] for name in TABLE_PARTS if name in resource.properties}
    if "ProvisionedThroughput" not in parts:
        parts["BillingMode"] = "PAY_PER_REQUEST"
    dynamodb = session.client("dynamodb")
    dynamodb.create_table(TableName=resource.name, **parts)
    if ttl := resource.properties.get("TimeToLiveSpecification"):
        dynamodb.update_time_to_live(TableName=resource.name, TimeToLiveSpecification=ttl)


def _simple_table(session: Session, resource: Resource) -> None:
    key = resource.properties.get("PrimaryKey", {"Name": "id", "Type": "String"})
    session.client("dynamodb").create_table(
        TableName=resource.name,
        AttributeDefinitions=[{"AttributeName": key["Name"], "AttributeType": SIMPLE_TYPES[key["Type"]]}],
        KeySchema=[{"AttributeName": key["Name"], "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )


def _topic(session: Session, resource: Resource) -> None:
    sns = session.client("sns")
    topic = sns.create_topic(Name=resource.name)["TopicArn"]
    for wanted in resource.properties.get("Subscription", []):
        sns.subscribe(TopicArn=topic, Protocol=wanted["Protocol"], Endpoint=wanted["Endpoint"])


def _queue(session: Session, resource: Resource) -> None:
    attributes = {k: _attribute(v) for k, v in resource.properties.items() if k not in ("QueueName", "Tags")}
    session.client("sqs").create_queue(QueueName=resource.name, Attributes=attributes)


def _attribute(value: Any) -> str:
    return json.dumps(value) if isinstance(value, Mapping | bool) else str(value)


def _identity(session: Session, resource: Resource) -> None:
    ses = session.client("ses")  # its first version, for not every emulator has the second
    if "@" in resource.name:
        ses.verify_email_identity(EmailAddress=resource.name)
    else:
        ses.verify_domain_identity(Domain=resource.name)


MAKERS: dict[str, Callable[[Session, Resource], None]] = {
    "AWS::DynamoDB::Table": _table,
    "AWS::Serverless::SimpleTable": _simple_table,
    "AWS::SNS::Topic": _topic,
    "AWS::SQS::Queue": _queue,
    "AWS::SES::EmailIdentity": _identity,
}
