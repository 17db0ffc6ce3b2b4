"""Amazon SES and SNS as the channels for e-mail and SMS."""

from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from duecourse.adapters.aws.clients import LazyClient
from duecourse.errors import SendFailed, SendRejected
from duecourse.ports.sender import Message

if TYPE_CHECKING:
    from mypy_boto3_ses import SESClient
    from mypy_boto3_ses.type_defs import BodyTypeDef
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sns.type_defs import MessageAttributeValueTypeDef

ONCE: dict[str, Any] = {"attempts": 1, "read_timeout_s": 8.0}
"""Options of both clients: a repeated request would be a second message."""
BY_SES = frozenset({"InvalidParameterValue"})
"""SES's error code for an invalid address; any other may pass by tomorrow: quotas, identities, pauses."""
BY_SNS = frozenset({"InvalidParameter", "InvalidParameterValue", "OptedOut"})
"""SNS's error codes for an invalid number, for a text it cannot take, and for people who opted out."""


class SesSender:
    """A Sender by SES's first API, the one that every emulator knows; `mail_from` is an identity verified there."""

    def __init__(self, mail_from: str, client: "SESClient | None" = None) -> None:
        self._mail_from = mail_from
        self._client = client or LazyClient("ses", **ONCE)

    def send(self, message: Message) -> str:
        """Send one message and return SES's id for it. Raises SendRejected, SendFailed."""
        if not self._mail_from:
            raise SendFailed("no sender address is configured: set DUECOURSE_MAIL_FROM")
        body: BodyTypeDef = {"Text": {"Data": message.text, "Charset": "UTF-8"}}
        if message.html:
            body["Html"] = {"Data": message.html, "Charset": "UTF-8"}
        with _sending("SES", BY_SES):
            answer = self._client.send_email(
                Source=self._mail_from,
                Destination={"ToAddresses": [message.to]},
                Message={"Subject": {"Data": message.subject, "Charset": "UTF-8"}, "Body": body},
            )
            return str(answer["MessageId"])


class SnsSender:
    """A Sender of SMS; `sms_from` is a number of the account's, a sender's name, or "" for SNS's own choice."""

    def __init__(self, sms_from: str, client: "SNSClient | None" = None) -> None:
        self._sms_from = sms_from
        self._client = client or LazyClient("sns", **ONCE)

    def send(self, message: Message) -> str:
        """Send one message's text and return SNS's id for it. Raises SendRejected, SendFailed."""
        with _sending("SNS", BY_SNS):
            answer = self._client.publish(
                PhoneNumber=message.to, Message=message.text, MessageAttributes=self._attributes()
            )
            return str(answer["MessageId"])

    def _attributes(self) -> "dict[str, MessageAttributeValueTypeDef]":
        # A reminder that comes late is of no use: SNS's other type of SMS is cheaper and may wait.
        given = {"AWS.SNS.SMS.SMSType": "Transactional"}
        if self._sms_from:
            number = self._sms_from.removeprefix("+").isdigit()
            given["AWS.MM.SMS.OriginationNumber" if number else "AWS.SNS.SMS.SenderID"] = self._sms_from
        return {name: {"DataType": "String", "StringValue": value} for name, value in given.items()}


@contextmanager
def _sending(service: str, rejections: Set[str]) -> Iterator[None]:
    """Tell a service's errors as a Sender does: SendRejected for the codes in `rejections`, else SendFailed."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        rejection = SendRejected if error.response["Error"]["Code"] in rejections else SendFailed
        raise rejection(f"{service} did not take it: {error}") from error
    except BotoCoreError as error:
        raise SendFailed(f"{service} did not take it: {error}") from error
