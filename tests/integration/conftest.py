"""Fixtures of the bridge, each with a `server` of its own, and of an AWS account that nobody has."""

import os
from collections.abc import Iterator

import boto3
import pytest

from tests.support.bridges import Bellman, Recorder, bellman
from tests.support.redis_server import RedisServer

REGION = "eu-central-1"


@pytest.fixture
def bells(server: RedisServer) -> Iterator[Bellman]:
    with bellman(server) as man:
        yield man


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def aws_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and a region that lead to no account, whatever the environment of this run has."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": REGION}.items():
        monkeypatch.setenv(name, value)
    # boto3 keeps a session for the process, made with the first test's environment.
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
