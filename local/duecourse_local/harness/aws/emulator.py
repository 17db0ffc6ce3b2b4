"""AWS's services: moto's server as a child process, or the user's endpoint; the template's resources in it."""

import asyncio
import json
import os
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import urllib3

from ...errors import HarnessError
from ..children import spawn
from ..logs import Log
from ..template import Resource, Template
from .account import CREDENTIALS, REGION

if TYPE_CHECKING:
    from localstack_client.session import Session  # type: ignore[import-untyped]

READY_WITHIN = 60.0
ENDPOINT = "AWS_ENDPOINT_URL"
SENT = "/duecourse/sent"
"""Path at which our moto lists messages: {"mails": [{"to", "subject", "body"}], "sms": [{"to", "text"}]}."""
_environment = Lock()
HOME = Path(__file__).parents[len(__package__.split("."))]
# Where this package is comes last on the search path: nothing beside it may stand in for a library.
PROGRAM = f"""
import runpy, sys
sys.path.append({str(HOME)!r})
runpy.run_module("{__package__}.moto_server", run_name="__main__", alter_sys=True)
"""


async def start(sock: socket.socket, environment: Mapping[str, str], log: Log, names: Sequence[str] = ()) -> Process:
    """Start moto's server on a listening socket, which becomes the server's own; `names` as `Guard` takes them.

    The socket listens before the server exists: the server takes a second to start, and meanwhile another program could
    get the port.
    """
    with sock:
        command = (sys.executable, "-P", "-c", PROGRAM, str(sock.fileno()), SENT, *names)
        return await spawn(command, environment=environment, out=log.descriptor, keeps=[sock.fileno()])


async def wait_until_ready(url: str) -> None:
    """Return once the server answers. Raises HarnessError."""
    try:
        await asyncio.to_thread(urllib3.request, "GET", url + SENT, timeout=READY_WITHIN, retries=False)
    except urllib3.exceptions.HTTPError:
        raise HarnessError("the AWS emulator does not start: see its log") from None


def session(url: str) -> "Session":
    """A boto3-like session whose clients call the emulator at `url`."""
    from localstack_client.session import Session  # brings boto3 along, and the address alone is wanted more often

    # localstack-client takes a whole URL from this variable only, and the variable wins over its argument
    with _environment:
        before = os.environ.get(ENDPOINT)
        os.environ[ENDPOINT] = url
        try:
            return Session(CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"], region_name=REGION)
        finally:
            if before is None:
                del os.environ[ENDPOINT]
            else:
                os.environ[ENDPOINT] = before


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


def create_resources(template: Template, aws: str) -> list[str]:
    """Create on the emulator every resource of a known type, and return all their names; existing ones stay.

    Raises HarnessError where the emulator does not answer, or rejects one.
    """
    # A queue that has a dead-letter queue wants that to be there.
    resources = sorted(template.resources(*MAKERS), key=lambda resource: "RedrivePolicy" in resource.properties)
    emulated = session(aws)
    for resource in resources:
        _create_resource(emulated, resource, aws)
    return [resource.name for resource in resources]


def _create_resource(session: "Session", resource: Resource, aws: str) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        MAKERS[resource.kind](session, resource)
    except (BotoCoreError, ClientError, ValueError) as error:
        known = isinstance(error, ClientError) and error.response["Error"]["Code"] in EXISTS
        if not known:
            raise HarnessError(f"{resource.name} cannot be created by the AWS services at {aws}: {error}") from error


def _table(session: "Session", resource: Resource) -> None:
    parts = {name: resource.properties[name] for name in TABLE_PARTS if name in resource.properties}
    if "ProvisionedThroughput" not in parts:
        parts["BillingMode"] = "PAY_PER_REQUEST"
    dynamodb = session.client("dynamodb")
    dynamodb.create_table(TableName=resource.name, **parts)
    if ttl := resource.properties.get("TimeToLiveSpecification"):
        dynamodb.update_time_to_live(TableName=resource.name, TimeToLiveSpecification=ttl)


def _simple_table(session: "Session", resource: Resource) -> None:
    key = resource.properties.get("PrimaryKey", {"Name": "id", "Type": "String"})
    session.client("dynamodb").create_table(
        TableName=resource.name,
        AttributeDefinitions=[{"AttributeName": key["Name"], "AttributeType": SIMPLE_TYPES[key["Type"]]}],
        KeySchema=[{"AttributeName": key["Name"], "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )


def _topic(session: "Session", resource: Resource) -> None:
    sns = session.client("sns")
    topic = sns.create_topic(Name=resource.name)["TopicArn"]
    for wanted in resource.properties.get("Subscription", []):
        sns.subscribe(TopicArn=topic, Protocol=wanted["Protocol"], Endpoint=wanted["Endpoint"])


def _queue(session: "Session", resource: Resource) -> None:
    attributes = {k: _attribute(v) for k, v in resource.properties.items() if k not in ("QueueName", "Tags")}
    session.client("sqs").create_queue(QueueName=resource.name, Attributes=attributes)


def _attribute(value: Any) -> str:
    return json.dumps(value) if isinstance(value, Mapping | bool) else str(value)


def _identity(session: "Session", resource: Resource) -> None:
    ses = session.client("ses")  # its first version, for not every emulator has the second
    if "@" in resource.name:
        ses.verify_email_identity(EmailAddress=resource.name)
    else:
        ses.verify_domain_identity(Domain=resource.name)


MAKERS: dict[str, Callable[["Session", Resource], None]] = {
    "AWS::DynamoDB::Table": _table,
    "AWS::Serverless::SimpleTable": _simple_table,
    "AWS::SNS::Topic": _topic,
    "AWS::SQS::Queue": _queue,
    "AWS::SES::EmailIdentity": _identity,
}


def deliverer(aws: str, notice: Callable[[str], None]) -> Callable[[str, str], None]:
    """A function that sends a record (JSON text) to a destination's ARN; `notice` gets its failures."""

    def deliver(destination: str, record: str) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            _deliver(aws, destination, record)
        except (BotoCoreError, ClientError, HarnessError) as error:
            notice(f"an invocation record did not reach {destination}: {error}")

    return deliver


def _deliver(aws: str, destination: str, record: str) -> None:
    service, name = destination.split(":")[2], destination.rpartition(":")[2]
    if service == "sqs":
        sqs = session(aws).client("sqs")
        sqs.send_message(QueueUrl=sqs.get_queue_url(QueueName=name)["QueueUrl"], MessageBody=record)
    elif service == "sns":
        session(aws).client("sns").publish(TopicArn=destination, Message=record)
    else:
        raise HarnessError(f"the harness delivers to sqs and sns, not to {service}")
