"""The key of KMS that wraps data keys: moto's KMS, and a server of a few lines for what moto never answers."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from moto import mock_aws

from duecourse.errors import SealBroken, SealUnavailable
from duecourse.services.aws import KmsKey
from tests.support.http_server import ReceivedRequest, Reply, Server, answering

pytestmark = [pytest.mark.usefixtures("aws_account"), pytest.mark.slow]


@pytest.fixture
def key() -> Iterator[KmsKey]:
    with mock_aws():
        client = boto3.client("kms")
        client.create_alias(AliasName="alias/duecourse", TargetKeyId=client.create_key()["KeyMetadata"]["KeyId"])
        yield KmsKey("alias/duecourse", "shop", client)
        client.close()


def test_a_data_key_is_32_bytes_that_only_kms_can_unwrap(key: KmsKey) -> None:
    made = key.new()
    assert len(made.plain) == 32
    assert made.plain not in made.wrapped
    assert key.unwrap(made.wrapped) == made.plain
    assert key.new().plain != made.plain


def test_a_data_key_of_another_namespace_is_not_unwrapped(key: KmsKey) -> None:
    other = KmsKey("alias/duecourse", "another shop", key._client())
    with pytest.raises(SealBroken, match="InvalidCiphertextException"):
        other.unwrap(key.new().wrapped)


def asking(server: Server) -> KmsKey:
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=1, read_timeout=1)
    return KmsKey("alias/duecourse", "shop", boto3.client("kms", endpoint_url=server.url, config=config))


@pytest.mark.parametrize("verb", ["new", "unwrap"])
@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("AccessDeniedException", "allow kms:GenerateDataKey and kms:Decrypt on it for this role"),
        ("DisabledException", "KMS answered DisabledException for the key that DUECOURSE_SEAL_KEY names"),
        ("NotFoundException", "KMS answered NotFoundException"),
        ("KMSInvalidStateException", "KMS answered KMSInvalidStateException"),
        ("ThrottlingException", "KMS answered ThrottlingException"),
    ],
)
def test_a_key_that_does_not_answer_as_it_should_may_do_so_later(verb: str, code: str, problem: str) -> None:
    refusal = Reply(400, json.dumps({"__type": code, "message": "no"}).encode())
    with answering(lambda _: refusal) as server, pytest.raises(SealUnavailable, match=problem):
        asking(server).new() if verb == "new" else asking(server).unwrap(b"x")


def test_a_namespace_is_told_to_kms_and_no_key_where_data_keys_are_opened() -> None:
    def reply(_: ReceivedRequest) -> Reply:
        return Reply(200, json.dumps({"Plaintext": "A" * 44, "CiphertextBlob": "eA=="}).encode())

    with answering(reply) as server:
        key = asking(server)
        key.new()
        key.unwrap(b"x")
    made, opened = (json.loads(asked.body) for asked in server.asked)
    context: dict[str, Any] = {"EncryptionContext": {"duecourse:namespace": "shop"}}
    assert made == {"KeyId": "alias/duecourse", "KeySpec": "AES_256", **context}
    assert opened == {"CiphertextBlob": "eA==", **context}


def test_kms_that_is_away_is_waited_for() -> None:
    with answering(lambda _: Reply()) as server:
        key = asking(server)
    with pytest.raises(SealUnavailable, match="KMS does not answer"):
        key.new()
