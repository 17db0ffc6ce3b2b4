"""Amazon SES as the channel for e-mail."""

from functools import cached_property
from typing import TYPE_CHECKING

from duecourse.adapters.aws.clients import make_client, sending
from duecourse.errors import SendFailed
from duecourse.ports.sender import Message

if TYPE_CHECKING:
    from mypy_boto3_ses import SESClient
    from mypy_boto3_ses.type_defs import BodyTypeDef

REJECTIONS = frozenset({"InvalidParameterValue"})
"""SES's error code for an invalid address; any other may pass by tomorrow: quotas, identities, pauses."""


class SesSender:
    """A Sender by SES's first API, the one that every emulator knows; `mail_from` is an identity verified there."""

    def __init__(self, mail_from: str, client: "SESClient | None" = None) -> None:
        self._mail_from = mail_from
        self._given = client

    @cached_property
    def _client(self) -> "SESClient":
        # One attempt: a repeated request would be a second e-mail.
        made: SESClient = self._given or make_client("ses", attempts=1, read_timeout_s=8.0)
        return made

    def send(self, message: Message) -> str:
        """Send one message and return SES's id for it. Raises SendRejected, SendFailed."""
        if not self._mail_from:
            raise SendFailed("no sender address is configured: set DUECOURSE_MAIL_FROM")
        with sending("SES", REJECTIONS):
            return self._send(message)

    def _send(self, message: Message) -> str:
        body: BodyTypeDef = {"Text": {"Data": message.text, "Charset": "UTF-8"}}
        if message.html:
            body["Html"] = {"Data": message.html, "Charset": "UTF-8"}
        answer = self._client.send_email(
            Source=self._mail_from,
            Destination={"ToAddresses": [message.to]},
            Message={"Subject": {"Data": message.subject, "Charset": "UTF-8"}, "Body": body},
        )
        return answer["MessageId"]
