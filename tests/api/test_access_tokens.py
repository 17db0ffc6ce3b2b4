"""Tokens, which the harness checks as API Gateway does."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from duecourse_local.harness.aws import authorizer
from duecourse_local.harness.aws.authorizer import AUDIENCE, ISSUER, Auth
from tests.support.authenticated_stack import AuthenticatedStack, authenticated_stack
from tests.support.commands import in_this_process

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthenticatedStack]:
    with authenticated_stack(Auth.JWT, tmp_path_factory.mktemp("state")) as stage:
        yield stage


def now() -> int:
    return int(time.time())


GOOD: dict[str, Any] = {"iss": ISSUER, "aud": AUDIENCE, "sub": "x", "org_id": "acme", "duecourse_roles": ["caller"]}
BAD: dict[str, Callable[[], dict[str, Any]]] = {
    "another issuer": lambda: {"iss": "https://evil.example/"},
    "no issuer": lambda: {"iss": None},
    "another audience": lambda: {"aud": "another"},
    "audiences without ours": lambda: {"aud": ["a", "b"]},
    "expired": lambda: {"exp": now() - 1},
    "no expiry": lambda: {"exp": None},
    "an expiry in words": lambda: {"exp": "tomorrow"},
    "not yet": lambda: {"nbf": now() + 60},
    "issued tomorrow": lambda: {"iat": now() + 86_400},
}


def sent(stage: AuthenticatedStack, token: str) -> int:
    return stage.send("GET", "/tasks", None, {"authorization": f"Bearer {token}"}).status


def signed(stage: AuthenticatedStack, **claims: Any) -> str:
    every = GOOD | {"exp": now() + 60} | claims
    return authorizer.tokens(stage.folder).signed({name: one for name, one in every.items() if one is not None})


@pytest.mark.parametrize("more", [{}, {"aud": ["a", AUDIENCE]}, {"aud": None, "client_id": AUDIENCE}, {"nbf": 0}])
def test_a_good_one_is_taken(stage: AuthenticatedStack, more: dict[str, Any]) -> None:
    assert sent(stage, signed(stage, **more)) == 200


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_one_is_not(stage: AuthenticatedStack, name: str) -> None:
    assert sent(stage, signed(stage, **BAD[name]())) == 401


def test_one_of_another_key_is_not(stage: AuthenticatedStack, tmp_path: Path) -> None:
    stranger = authorizer.tokens(tmp_path).signed(GOOD | {"exp": now() + 60})
    assert sent(stage, stranger) == 401


def test_one_that_was_changed_is_not(stage: AuthenticatedStack) -> None:
    head, _claims, signature = signed(stage).split(".")
    other = signed(stage, org_id="globex").split(".")[1]
    assert sent(stage, f"{head}.{other}.{signature}") == 401


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
def test_one_without_a_signature_of_the_private_key_is_not(stage: AuthenticatedStack, algorithm: str) -> None:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    unsigned = f"{part({'alg': algorithm})}.{part(GOOD | {'exp': now() + 60})}."
    assert sent(stage, unsigned) == 401


def test_claims_come_as_texts(stage: AuthenticatedStack) -> None:
    token = signed(stage, duecourse_roles=["caller", "operator"], org_id=None)
    shown = stage.send("GET", "/queues", None, {"authorization": token})
    assert shown.status == 200, "a list is a text in brackets, and Bearer may be left out"


def test_the_command_prints_one(stage: AuthenticatedStack) -> None:
    words = ["token", "--tenant", "acme", "--role", "caller", "--subject", "shop", "--state", str(stage.folder)]
    assert sent(stage, in_this_process(*words).stdout.strip()) == 200
