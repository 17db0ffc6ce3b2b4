"""Signatures, which the harness checks as far as headers go."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from duecourse_local.harness.aws import authorizer
from duecourse_local.harness.aws.account import REGION
from duecourse_local.harness.aws.authorizer import Auth
from tests.support.authenticated_stack import ACME, AuthenticatedStack, authenticated_stack
from tests.support.commands import in_this_process
from tests.support.requests import WEBHOOK

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthenticatedStack]:
    with authenticated_stack(Auth.IAM, tmp_path_factory.mktemp("state")) as stage:
        yield stage


def headers_of(stage: AuthenticatedStack, target: str = "/tasks", text: str | None = None) -> dict[str, str]:
    by = authorizer.signatures(stage.folder).issue(ACME.name)
    return stage.signed(by, "GET" if text is None else "POST", target, text, {"content-type": "application/json"})


def test_what_was_signed_is_taken_once_changed_it_is_not(stage: AuthenticatedStack) -> None:
    headers = headers_of(stage, "/tasks?queue=a&limit=5")
    assert stage.send("GET", "/tasks?limit=5&queue=a", None, headers).status == 200, "the order is not signed"
    for target in ("/tasks?queue=b&limit=5", "/tasks?queue=a&limit=5&state=dead", "/queues?queue=a&limit=5"):
        assert stage.send("GET", target, None, headers).status == 403
    assert stage.send("DELETE", "/tasks/a?queue=a&limit=5", None, headers).status == 403


def test_a_body_is_the_one_that_was_signed(stage: AuthenticatedStack) -> None:
    text = json.dumps(WEBHOOK | {"id": "signed"})
    headers = headers_of(stage, text=text)
    assert stage.send("POST", "/tasks", text.replace("signed", "forged"), headers).status == 403
    assert stage.send("POST", "/tasks", text, headers).status == 201


@pytest.mark.parametrize(
    "changed",
    [
        {"x-amz-security-token": "YXJuOmF3czppYW06OjEyMzQ1Njc4OTAxMjpyb2xlL29wZXJhdG9y"},
        {"x-amz-date": "20200101T000000Z"},
        {"x-amz-date": "yesterday"},
        {"authorization": "AWS4-HMAC-SHA256 nothing"},
        {"authorization": "Bearer a.b.c"},
        {"host": "evil.localhost"},
    ],
)
def test_what_a_proof_is_made_of_cannot_be_exchanged(stage: AuthenticatedStack, changed: dict[str, str]) -> None:
    headers = {name.lower(): value for name, value in headers_of(stage).items()}
    assert stage.send("GET", "/tasks", None, headers | changed).status == 403


def test_keys_of_another_machine_are_unknown(stage: AuthenticatedStack, tmp_path: Path) -> None:
    stranger = authorizer.signatures(tmp_path).issue(ACME.name)
    assert stage.send("GET", "/tasks", None, stage.signed(stranger, "GET", "/tasks", None, {})).status == 403


def test_an_encoded_id_is_signed_as_it_is_sent(stage: AuthenticatedStack) -> None:
    assert stage.send("GET", "/tasks/a%3Ab", None, headers_of(stage, "/tasks/a%3Ab")).status == 404


def test_the_command_prints_some(stage: AuthenticatedStack) -> None:
    printed = in_this_process("credentials", ACME.name, "--state", str(stage.folder)).stdout
    named = dict(line.split("=", 1) for line in printed.splitlines())
    by = (named["AWS_ACCESS_KEY_ID"], named["AWS_SECRET_ACCESS_KEY"], named["AWS_SESSION_TOKEN"])
    assert stage.send("GET", "/tasks", None, stage.signed(by, "GET", "/tasks", None, {})).status == 200


class _SignedAt(SigV4Auth):
    """A signature of another time than now."""

    def __init__(self, by: Credentials, at: float) -> None:
        super().__init__(by, "execute-api", REGION)
        self._at = datetime.fromtimestamp(at, UTC).strftime("%Y%m%dT%H%M%SZ")

    def add_auth(self, request: AWSRequest) -> None:
        request.context["timestamp"] = self._at
        self._modify_request_before_signing(request)
        text = self.string_to_sign(request, self.canonical_request(request))
        self._inject_signature_to_request(request, self.signature(text, request))


@pytest.mark.parametrize(("off_s", "status"), [(0, 200), (-200, 200), (-900, 403), (900, 403)])
def test_a_signature_is_for_five_minutes(stage: AuthenticatedStack, off_s: float, status: int) -> None:
    request = AWSRequest("GET", f"{stage.api}/tasks")
    by = Credentials(*authorizer.signatures(stage.folder).issue(ACME.name))
    _SignedAt(by, time.time() + off_s).add_auth(request)
    assert stage.send("GET", "/tasks", None, dict(request.headers.items())).status == status
