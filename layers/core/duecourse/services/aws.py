"""Clients of AWS; Lambda as the functions' service; SQS, DynamoDB, KMS, SES and SNS by their users' Protocols."""

import hashlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import cache, cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlsplit

from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Timeout
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError

from duecourse.base.batches import cut
from duecourse.base.json_text import Json, dump_json
from duecourse.errors import (
    DuecourseError,
    InvocationRejected,
    PublishRejected,
    ResultsUnavailable,
    SealBroken,
    SealUnavailable,
    SendFailed,
    SendRejected,
)
from duecourse.guard.seals import DataKey
from duecourse.ledger.operation_types import PATIENCE_MS, Result
from duecourse.ledger.task import Task
from duecourse.reminders.send import Message
from duecourse.running.task_event import BrokerMessage

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ses import SESClient
    from mypy_boto3_ses.type_defs import BodyTypeDef
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sns.type_defs import MessageAttributeValueTypeDef
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef

# Clients of AWS services, with timeouts, each made on first use.

_making = threading.RLock()
CONNECTIONS = 64
CONNECT_TIMEOUT_S = 3.0

# A fork waits for the client that a thread makes: in the child that thread is not there to end it.
os.register_at_fork(before=_making.acquire, after_in_parent=_making.release, after_in_child=_making.release)

# Lambda's root logger lets INFO through, where botocore tells of each client which credentials it found.
logging.getLogger("botocore").setLevel(logging.WARNING)


def make_client(
    service: str,
    *,
    attempts: int,
    read_timeout_s: float,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    region: str = "",
) -> Any:
    """A boto3 client for `service`, safe for threads; credentials and endpoint come from AWS's own variables.

    So does the region, unless it is given. `attempts` counts the first one: 1 means that nothing is sent twice. Raises
    botocore's BotoCoreError.
    """
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=connect_timeout_s,
        read_timeout=read_timeout_s,
        retries={"total_max_attempts": attempts, "mode": "standard"},
        max_pool_connections=CONNECTIONS,
        tcp_keepalive=True,
    )
    # boto3's default session, made by the first call, is not safe for threads; clients are.
    with _making:
        return boto3.client(service, region_name=region or None, config=config)  # type: ignore[call-overload]


def client_of(service: str, given: Any = None, **options: Any) -> Callable[[], Any]:
    """A function that returns the given client, or else one that its first call makes with these options.

    To make one takes a tenth of a second, and few processes use it. A forked child makes one of its own: on its
    parent's connections each would read answers to the other.
    """
    # Two threads at once may make one each: either serves.
    made = cache(lambda _pid: given or make_client(service, **options))
    return lambda: made(os.getpid())


# Signed calls to one service of AWS: its client's address and credentials, without its models.
#
# A call of botocore's own client takes four times as long as signing and sending, and a ring makes two calls, one after
# the other.

KEEP_ALIVE = [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
WITHIN_LAMBDA = ("AWS_LAMBDA_FUNCTION_NAME", "_X_AMZN_TRACE_ID")


class SignedCalls:
    """POST requests to `service`, each sent once; safe for threads.

    Region, credentials, endpoint, certificates and proxies come from where botocore looks for them. Raises botocore's
    BotoCoreError where there is no region.
    """

    def __init__(self, service: str, read_timeout_s: float) -> None:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.session import get_session

        client, session = make_client(service, attempts=1, read_timeout_s=read_timeout_s), get_session()
        self._url = client.meta.endpoint_url.rstrip("/")
        self._signing = (client.meta.service_model.signing_name, client.meta.region_name)
        client.close()
        self._credentials = session.get_credentials()
        self.timeout = Timeout(connect=CONNECT_TIMEOUT_S, read=read_timeout_s)
        self._pools = _pools(self._url, session.get_config_variable("ca_bundle") or True)
        self._request_of, self._signer_of = AWSRequest, SigV4Auth

    def post(self, path: str, headers: Mapping[str, str], body: bytes) -> BaseHTTPResponse:
        """The answer to one request, read whole. Raises urllib3's HTTPError, or BotoCoreError without credentials."""
        url = self._url + path
        request = self._request_of("POST", url, data=body, headers={**headers, **_trace()})
        credentials: Any = self._credentials and self._credentials.get_frozen_credentials()
        self._signer_of(credentials, *self._signing).add_auth(request)  # which says so where there are none
        return self._pools.request(
            "POST",
            url,
            body=body,
            headers=dict(request.headers.items()),
            timeout=self.timeout,
            retries=False,
            redirect=False,
        )

    def close(self) -> None:
        """Give up the connections."""
        self._pools.clear()


def _pools(url: str, verify: Any) -> PoolManager:
    from botocore.httpsession import get_cert_path
    from botocore.utils import get_environ_proxies

    options: dict[str, Any] = {"maxsize": CONNECTIONS, "socket_options": KEEP_ALIVE, "ca_certs": get_cert_path(verify)}
    proxy = get_environ_proxies(url).get(urlsplit(url).scheme)
    return ProxyManager(proxy, **options) if proxy else PoolManager(**options)


def _trace() -> dict[str, str]:
    """The trace of the invocation at hand, within Lambda: by it a function that invokes itself for ever is found."""
    trace = all(name in os.environ for name in WITHIN_LAMBDA) and os.environ["_X_AMZN_TRACE_ID"]
    return {"X-Amzn-Trace-Id": quote(trace, safe="-=;:+&[]{}\"',")} if trace else {}


# Lambda as the functions' service.

PATH = "/2015-03-31/functions/{}/invocations"


class LambdaInvoker:
    """An Invoker by the Invoke API; nothing is sent twice.

    `timeout_ms` is the longest wait for an answer. A connection can die without a word: a late answer is an error, or
    its caller would wait for ever.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1000

    @cached_property
    def _calls(self) -> SignedCalls:
        return SignedCalls("lambda", self._timeout_s)

    def prepare(self) -> None:
        """Make the client now: that takes longer than a ring may be late. Raises InvocationRejected."""
        from botocore.exceptions import BotoCoreError

        try:
            _ = self._calls
        except BotoCoreError as error:
            raise InvocationRejected(f"no Lambda client can be created: {error}") from error

    def invoke(self, function: str, event: Json) -> Json:
        """Run `function` and wait for its answer. Raises InvocationRejected, also where the function itself failed."""
        response = self._call(function, "RequestResponse", event)
        answer = _decoded(function, response.data)
        if "X-Amz-Function-Error" in response.headers:
            raise InvocationRejected(f"{function} failed: {_reason(answer)}")
        return answer

    def send(self, function: str, event: Json) -> None:
        """Have `function` run later, without its answer. Raises InvocationRejected."""
        response = self._call(function, "Event", event)
        if response.status != 202:
            raise InvocationRejected(f"{function} was not accepted: status {response.status}")

    def _call(self, function: str, mode: str, event: Json) -> BaseHTTPResponse:
        from botocore.exceptions import BotoCoreError

        headers = {"X-Amz-Invocation-Type": mode, "Content-Type": "application/json"}
        try:
            response = self._calls.post(PATH.format(quote(function, safe="")), headers, dump_json(event).encode())
        except (BotoCoreError, HTTPError) as error:
            raise InvocationRejected(f"{function} was not invoked: {error}") from error
        if response.status >= 300:
            raise InvocationRejected(f"{function} was not invoked: {_refusal(response)}")
        return response


def _refusal(response: BaseHTTPResponse) -> str:
    """Lambda's own words: the kind of error, which may be followed by an address, and its message."""
    try:
        answer = json.loads(response.data)
        message = answer.get("Message") or answer.get("message") or ""
    except (ValueError, AttributeError):
        message = response.data[:200].decode(errors="replace")
    kind = response.headers.get("X-Amzn-ErrorType", "").partition(":")[0]
    return f"{kind or 'error'} ({response.status}) {message}".rstrip()


def _decoded(function: str, body: bytes) -> Json:
    try:
        return json.loads(body) if body else None
    except ValueError as error:
        raise InvocationRejected(f"{function} answered something that is not JSON") from error


def _reason(answer: Json) -> str:
    if not isinstance(answer, dict):
        return str(answer)[:400]
    return f"{answer.get('errorType', 'error')}: {answer.get('errorMessage', '')}"[:400]


# SQS as a broker that tasks are handed to.

KEY = "idempotency_key"
"""The message attribute that carries a message's id."""
MAX_ENTRIES = 10
MAX_BATCH_BYTES = 256 * 1024
"""SQS takes 1 MiB a request since August 2025; queues with a limit of their own and emulators still take this."""
ATTRIBUTE_BYTES = 200
"""Size of a message besides its body, in bytes."""
WAITS_S = (0.1, 0.4)
"""Before what failed in a batch is sent again."""


class SqsPublisher:
    """A Publisher by SQS; a queue is a name of this account and region, or a URL.

    In a FIFO queue each message is its own group, and its source and id keep SQS from taking it twice within five
    minutes.
    """

    def __init__(self, client: "SQSClient | None" = None) -> None:
        self._client: Callable[[], SQSClient] = client_of("sqs", client, attempts=2, read_timeout_s=5.0)
        self._urls: dict[str, str] = {}

    def publish(self, queue: str, messages: Sequence[BrokerMessage]) -> list[str]:
        """Put messages into `queue`; answers for each why SQS did not take it, "" where it did.

        Raises PublishRejected where SQS does not answer or knows no such queue.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        problems: dict[str, str] = {}
        try:
            for batch in cut(messages, _size, most=MAX_ENTRIES, max_bytes=MAX_BATCH_BYTES):
                self._send_all(queue, batch, problems)
        except (BotoCoreError, ClientError, ValueError) as error:
            if not problems:
                raise PublishRejected(f"SQS did not take them: {error}") from error
            return [problems.get(message.id, f"SQS did not take it: {error}") for message in messages]
        return [problems[message.id] for message in messages]

    def _send_all(self, queue: str, batch: Sequence[BrokerMessage], problems: dict[str, str]) -> None:
        """Record each message's problem by its id; messages at which SQS failed by its own fault are sent again.

        If a later call raises, `problems` already has the messages confirmed before it.
        """
        for wait in (0.0, *WAITS_S):
            if batch:
                time.sleep(wait)
                batch = self._send(queue, batch, problems)

    def _send(self, queue: str, batch: Sequence[BrokerMessage], problems: dict[str, str]) -> list[BrokerMessage]:
        entries = [_entry(n, message, fifo=queue.endswith(".fifo")) for n, message in enumerate(batch)]
        answer = self._client().send_message_batch(QueueUrl=self._url(queue), Entries=entries)
        taken = {entry["Id"] for entry in answer.get("Successful", ())}
        failed = {entry["Id"]: entry for entry in answer.get("Failed", ())}
        again = []
        for n, message in enumerate(batch):
            failure = failed.get(str(n))
            problem = f"{failure['Code']}: {failure.get('Message', '')}" if failure else "SQS did not tell of it"
            problems[message.id] = "" if str(n) in taken else problem
            if failure and not failure["SenderFault"]:
                again.append(message)
        return again

    def _url(self, queue: str) -> str:
        if queue.startswith(("https://", "http://")):
            return queue
        if queue not in self._urls:
            self._urls[queue] = self._client().get_queue_url(QueueName=queue)["QueueUrl"]
        return self._urls[queue]


def _entry(number: int, message: BrokerMessage, *, fifo: bool) -> "SendMessageBatchRequestEntryTypeDef":
    entry: SendMessageBatchRequestEntryTypeDef = {
        "Id": str(number),
        "MessageBody": message.body,
        "MessageAttributes": {KEY: {"DataType": "String", "StringValue": message.id}},
    }
    if fifo:
        # A hash, for SQS takes 128 characters; of the source too, or another queue's task would be a repetition.
        once = hashlib.sha256(f"{message.source}/{message.id}".encode()).hexdigest()
        entry |= {"MessageGroupId": once, "MessageDeduplicationId": once}
    return entry


def _size(message: BrokerMessage) -> int:
    return len(message.body) + ATTRIBUTE_BYTES


# Results in a DynamoDB table, one item a task.
#
# | attribute | type | holds |
# | --- | --- | --- |
# | id | S, partition key | `<queue>/<tenant>/<task id>` |
# | generation, fence | N | the lease under which the result came about |
# | result | S | JSON text |
# | stored_at | N | epoch milliseconds |
# | expires_at | N, the table's TTL attribute | epoch seconds |

TABLE_ATTEMPTS = 2
BACKOFF_MS = 1_000
"""Longest wait of botocore before the second attempt."""
CONNECT_MS = 500
READ_MS = (PATIENCE_MS - BACKOFF_MS) // TABLE_ATTEMPTS - CONNECT_MS

# Fences only grow within a shard, and generations are drawn from the same counter, so the fence alone decides. An item
# that is older than the task itself stems from a ledger that was lost since, with its counter: it must not win forever.
_UNLESS_NEWER = "attribute_not_exists(id) OR fence <= :fence OR stored_at < :created_at OR expires_at <= :now"


class DynamoDbResults:
    """A Results in the table `table_name`, where each result stays for `retention_ms`.

    The region is AWS's own variable's, unless it is given.
    """

    def __init__(
        self, table_name: str, retention_ms: int, client: "DynamoDBClient | None" = None, *, region: str = ""
    ) -> None:
        self._table = table_name
        self._region = region
        self._retention_ms = retention_ms
        self._client: Callable[[], DynamoDBClient] = client_of(
            "dynamodb",
            client,
            attempts=TABLE_ATTEMPTS,
            connect_timeout_s=CONNECT_MS / 1000,
            read_timeout_s=READ_MS / 1000,
            region=region,
        )

    @classmethod
    def at(cls, place: str, retention_ms: int) -> Self:
        """The table of a place."""
        table, _, region = place.partition("@")
        return cls(table, retention_ms, region=region)

    @property
    def place(self) -> str:
        """See Results: the table's name, and its region where that is known."""
        region = self._region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return f"{self._table}@{region}" if region else self._table

    def put(self, task: Task, result_json: str, now: int) -> bool:
        """Keep the task's result; False, and nothing changed, where a newer one is there.

        Raises ResultsUnavailable.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return self._put(task, self._item(task, result_json, now), now)
        except (BotoCoreError, ClientError) as error:
            raise ResultsUnavailable(f"the results table {self.place} did not take it: {error}") from error

    def _put(self, task: Task, item: dict[str, Any], now: int) -> bool:
        values = {":fence": task.fence, ":created_at": task.created_at, ":now": now // 1000}
        client = self._client()
        try:
            client.put_item(
                TableName=self._table,
                Item=item,
                ConditionExpression=_UNLESS_NEWER,
                ExpressionAttributeValues={name: _number(value) for name, value in values.items()},
            )
        except client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def _item(self, task: Task, result_json: str, now: int) -> dict[str, Any]:
        return {
            "id": {"S": _key(task.queue, task.id, task.tenant)},
            "generation": _number(task.generation),
            "fence": _number(task.fence),
            "result": {"S": result_json},
            "stored_at": _number(now),
            "expires_at": _number((now + self._retention_ms) // 1000),
        }

    def get(self, queue: str, id: str, tenant: str) -> Result | None:
        """The task's result; None without one, or with one whose time is over. Raises ResultsUnavailable."""
        from botocore.exceptions import BotoCoreError, ClientError

        key = {"id": {"S": _key(queue, id, tenant)}}
        try:
            item = self._client().get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        except (BotoCoreError, ClientError) as error:
            raise ResultsUnavailable(f"the results table {self.place} did not answer: {error}") from error
        return _result(item) if item else None


def _result(item: Any) -> Result | None:
    # DynamoDB removes an expired item when it comes to it, up to days later.
    if int(item["expires_at"]["N"]) <= time.time():
        return None
    return Result(json.loads(item["result"]["S"]), int(item["fence"]["N"]), int(item["stored_at"]["N"]))


def _key(queue: str, id: str, tenant: str) -> str:
    return f"{queue}/{tenant}/{id}"


def _number(value: int) -> dict[str, str]:
    return {"N": str(value)}


# A wrapping key in KMS: makes data keys and opens them, each bound to the namespace by its encryption context.

ATTEMPTS, CONNECT_S, READ_S = 2, 2.0, 2.0
CONTEXT = "duecourse:namespace"
"""Name in the encryption context; policies may demand its value."""
WRONG = {"InvalidCiphertextException", "IncorrectKeyException"}
"""Errors of a data key that this key cannot have made; any other may pass, or somebody mends it."""
CLOSED = {"AccessDeniedException": ": allow kms:GenerateDataKey and kms:Decrypt on it for this role"}


class KmsKey:
    """Wrapping of data keys by the KMS key of this ARN, id or alias."""

    def __init__(self, key: str, namespace: str, client: Any = None) -> None:
        self._key = key
        self._context = {CONTEXT: namespace}
        self._client = client_of("kms", client, attempts=ATTEMPTS, connect_timeout_s=CONNECT_S, read_timeout_s=READ_S)

    def new(self) -> DataKey:
        """See Wrapping."""
        answer = self._ask("generate_data_key", KeyId=self._key, KeySpec="AES_256")
        return DataKey(answer["Plaintext"], answer["CiphertextBlob"])

    def unwrap(self, wrapped: bytes) -> bytes:
        """See Wrapping. KMS finds the key by the text, so that data keys of an earlier one still open."""
        plain: bytes = self._ask("decrypt", CiphertextBlob=wrapped)["Plaintext"]
        return plain

    def _ask(self, verb: str, **given: Any) -> Any:
        if not find_spec("boto3"):
            raise SealUnavailable("DUECOURSE_SEAL_KEY needs boto3: pip install 'duecourse[aws]'")
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._client(), verb)(EncryptionContext=self._context, **given)
        except ClientError as error:
            raise self._refusal(error.response["Error"]["Code"]) from error
        except BotoCoreError as error:
            raise SealUnavailable(f"KMS does not answer ({error}), so no credential is sealed or opened") from error

    def _refusal(self, code: str) -> DuecourseError:
        if code in WRONG:
            return SealBroken(f"a data key of the ledger cannot be opened: KMS answered {code}")
        return SealUnavailable(f"KMS answered {code} for the key that DUECOURSE_SEAL_KEY names{CLOSED.get(code, '')}")


# Amazon SES and SNS as the channels for e-mail and SMS.

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
        self._client: Callable[[], SESClient] = client_of("ses", client, **ONCE)

    def send(self, message: Message) -> str:
        """Send one message and return SES's id for it. Raises SendRejected, SendFailed."""
        if not self._mail_from:
            raise SendFailed("no sender address is configured: set DUECOURSE_MAIL_FROM")
        body: BodyTypeDef = {"Text": {"Data": message.text, "Charset": "UTF-8"}}
        if message.html:
            body["Html"] = {"Data": message.html, "Charset": "UTF-8"}
        with _sending("SES", BY_SES):
            answer = self._client().send_email(
                Source=self._mail_from,
                Destination={"ToAddresses": [message.to]},
                Message={"Subject": {"Data": message.subject, "Charset": "UTF-8"}, "Body": body},
            )
            return str(answer["MessageId"])


class SnsSender:
    """A Sender of SMS; `sms_from` is a number of the account's, a sender's name, or "" for SNS's own choice."""

    def __init__(self, sms_from: str, client: "SNSClient | None" = None) -> None:
        self._sms_from = sms_from
        self._client: Callable[[], SNSClient] = client_of("sns", client, **ONCE)

    def send(self, message: Message) -> str:
        """Send one message's text and return SNS's id for it. Raises SendRejected, SendFailed."""
        with _sending("SNS", BY_SNS):
            answer = self._client().publish(
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
