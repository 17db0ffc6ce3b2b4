"""The channels to people: SES and SNS as moto has them and as they refuse, a webhook at a real receiver."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID
from moto.ses.models import ses_backends
from moto.sns.models import sns_backends

from duecourse.calls.webhook import Webhook
from duecourse.errors import SendFailed, SendRejected
from duecourse.guard.http_client import GuardedHttpClient
from duecourse.ledger.task import Done, Retry
from duecourse.reminders.send import Message, ReminderKind, Sender
from duecourse.reminders.writer import TemplateWriter
from duecourse.services.aws import SesSender, SnsSender
from tests.support.clock import START
from tests.support.egress import HERE, anyone
from tests.support.http_server import Reply, answering
from tests.support.kinds import leased

REGION = "eu-central-1"
MAIL = Message("ada@example.com", "Stand-up ü", "Hello Ada,\n")
SMS = Message("+436641234567", "Stand-up", "Stand-up in 5 minutes ü")


pytestmark = [pytest.mark.usefixtures("aws_account"), pytest.mark.slow]


@pytest.fixture
def ses() -> Iterator[Any]:
    with mock_aws():
        client = boto3.client("ses")
        client.verify_email_identity(EmailAddress="due@example.com")
        yield client
        client.close()


@pytest.fixture
def sns() -> Iterator[Any]:
    with mock_aws():
        client = boto3.client("sns")
        yield client
        client.close()


def asked_of(client: Any, event: str) -> list[dict[str, Any]]:
    """What the client is asked to send, as it is asked."""
    asked: list[dict[str, Any]] = []
    client.meta.events.register(f"provide-client-params.{event}", lambda params, **_: asked.append(params))
    return asked


def test_a_message_goes_out_by_ses(ses: Any) -> None:
    message_id = SesSender("due@example.com", ses).send(MAIL)
    sent = ses_backends[DEFAULT_ACCOUNT_ID][REGION].sent_messages
    assert [(m.id, m.source, m.subject, m.body, m.destinations["ToAddresses"]) for m in sent] == [
        (message_id, "due@example.com", MAIL.subject, MAIL.text, ["ada@example.com"])
    ]


def test_an_e_mail_has_a_text_part_and_an_html_part_where_there_is_html(ses: Any) -> None:
    asked = asked_of(ses, "ses.SendEmail")
    sender = SesSender("due@example.com", ses)
    sender.send(MAIL)
    sender.send(MAIL._replace(html="<p>Hello Ada ü</p>"))
    text = {"Data": MAIL.text, "Charset": "UTF-8"}
    html = {"Data": "<p>Hello Ada ü</p>", "Charset": "UTF-8"}
    assert [request["Message"]["Body"] for request in asked] == [{"Text": text}, {"Text": text, "Html": html}]
    assert ses_backends[DEFAULT_ACCOUNT_ID][REGION].sent_messages[1].body == html["Data"]


def test_a_sender_that_is_not_verified_is_a_failed_send(ses: Any) -> None:
    with pytest.raises(SendFailed, match="not verified"):
        SesSender("stranger@example.com", ses).send(MAIL)


def test_no_sender_at_all_names_the_setting() -> None:
    with pytest.raises(SendFailed, match="DUECOURSE_MAIL_FROM"):
        SesSender("").send(MAIL)


def test_an_sms_goes_out_by_sns_at_once_and_is_its_text(sns: Any) -> None:
    asked = asked_of(sns, "sns.Publish")
    message_id = SnsSender("", sns).send(SMS)
    assert sns_backends[DEFAULT_ACCOUNT_ID][REGION].sms_messages == {message_id: (SMS.to, SMS.text)}
    [request] = asked
    assert request["MessageAttributes"] == {
        "AWS.SNS.SMS.SMSType": {"DataType": "String", "StringValue": "Transactional"}
    }


@pytest.mark.parametrize(
    ("sms_from", "attribute"),
    [
        ("Duecourse", "AWS.SNS.SMS.SenderID"),
        ("+436641234567", "AWS.MM.SMS.OriginationNumber"),
        ("12345", "AWS.MM.SMS.OriginationNumber"),
    ],
)
def test_an_sms_says_whom_it_comes_from(sns: Any, sms_from: str, attribute: str) -> None:
    asked = asked_of(sns, "sns.Publish")
    SnsSender(sms_from, sns).send(SMS)
    assert asked[0]["MessageAttributes"][attribute]["StringValue"] == sms_from


def test_a_number_that_is_none_is_refused_for_good(sns: Any) -> None:
    with pytest.raises(SendRejected, match=r"SNS did not take it: .*InvalidParameter"):
        SnsSender("", sns).send(SMS._replace(to="+43NAA007"))


def refusing(code: str) -> Reply:
    """How SES and SNS refuse."""
    fault = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>no</Message></Error>"
    return Reply(400, f"<ErrorResponse>{fault}</ErrorResponse>".encode(), {"content-type": "text/xml"})


@pytest.mark.parametrize(
    ("sender", "code", "error"),
    [
        (SnsSender(""), "InvalidParameter", SendRejected),
        (SnsSender(""), "OptedOut", SendRejected),
        (SnsSender(""), "Throttled", SendFailed),
        (SnsSender(""), "AuthorizationError", SendFailed),
        (SesSender("due@example.com"), "InvalidParameterValue", SendRejected),
        (SesSender("due@example.com"), "MessageRejected", SendFailed),
        (SesSender("due@example.com"), "Throttling", SendFailed),
        (SesSender("due@example.com"), "AccountSendingPausedException", SendFailed),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
def test_what_a_service_refuses_ends_as_its_error_says_and_is_sent_once(
    monkeypatch: pytest.MonkeyPatch, sender: Any, code: str, error: type[Exception]
) -> None:
    with answering(lambda _: refusing(code)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        own = type(sender)("due@example.com" if isinstance(sender, SesSender) else "")
        with pytest.raises(error, match=code):
            own.send(SMS if isinstance(sender, SnsSender) else MAIL)
        own._client().close()
    assert len(server.asked) == 1


@pytest.mark.parametrize(("sender", "message"), [(SesSender("due@example.com"), MAIL), (SnsSender(""), SMS)])
def test_a_service_that_is_away_is_a_failed_send(
    monkeypatch: pytest.MonkeyPatch, sender: Sender, message: Message
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(SendFailed):
        sender.send(message)


def test_a_webhook_is_delivered_to_a_real_receiver_under_one_id_until_it_takes_it() -> None:
    replies = iter([Reply(503), Reply(200)])
    http = GuardedHttpClient(1, HERE)
    with answering(lambda _: next(replies)) as server:
        to = {"name": "Ops", "channel": "webhook", "address": f"{server.url}/meetings", "time_zone": "UTC"}
        templates = {"subject": "{{ recipient.name }}", "message": "in {{ lead }}", "html": "", "data": {"room": 4}}
        payload = {"reminder": "standup", **templates, "recipient": to, "lead_ms": 300_000}
        task = leased("reminder", payload, state={"starts_at": START + 300_000})
        kind = ReminderKind({}, Webhook(http, 5_000), TemplateWriter().write, anyone, lambda: START)
        assert isinstance(kind(task), Retry)
        assert kind(task) == Done({"status": 200})
    http.close()
    assert {asked.headers["webhook-id"] for asked in server.asked} == {task.idempotency_key}
    body = json.loads(server.asked[1].body)
    assert (body["subject"], body["text"], body["data"]) == ("Ops", "in 5 minutes", {"room": 4})
