"""Amazon SNS as the channel for SMS."""

from functools import cached_property
from typing import TYPE_CHECKING

from duecourse.adapters.aws.clients import make_client, sending
from duecourse.ports.sender import Message

if TYPE_CHECKING:
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sns.type_defs import MessageAttributeValueTypeDef

REJECTIONS = frozenset({"InvalidParameter", "InvalidParameterValue", "OptedOut"})
"""SNS's error codes for an invalid number, for a text it cannot take, and for people who opted out."""


class SnsSender:
    """A Sender of SMS; `sms_from` is a number of the account's, a sender's name, or "" for SNS's own choice."""

    def __init__(self, sms_from: str, client: "SNSClient | None" = None) -> None:
        self._sms_from = sms_from
        self._given = client

    @cached_property
    def _client(self) -> "SNSClient":
        # One attempt: a repeated request would be a second SMS.
        made: SNSClient = self._given or make_client("sns", attempts=1, read_timeout_s=8.0)
        return made

    def send(self, message: Message) -> str:
        """Send one message's text and return SNS's id for it. Raises SendRejected, SendFailed."""
        with sending("SNS", REJECTIONS):
            answer = self._client.publish(
                PhoneNumber=message.to, Message=message.text, MessageAttributes=self._attributes()
            )
            return answer["MessageId"]

    def _attributes(self) -> "dict[str, MessageAttributeValueTypeDef]":
        # A reminder that comes late is of no use: SNS's other type of SMS is cheaper and may wait.
        given = {"AWS.SNS.SMS.SMSType": "Transactional"}
        if self._sms_from:
            number = self._sms_from.removeprefix("+").isdigit()
            given["AWS.MM.SMS.OriginationNumber" if number else "AWS.SNS.SMS.SenderID"] = self._sms_from
        return {name: {"DataType": "String", "StringValue": value} for name, value in given.items()}
