"""Stacks of small functions, and boto3's own client to call them with."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import boto3
from botocore.config import Config
from mypy_boto3_lambda import LambdaClient

from duecourse_local.harness.aws.account import REGION
from duecourse_local.harness.options import Options
from duecourse_local.harness.stack import Stack
from tests.support.project import ROOT

FOLDER = ROOT / "tests" / "local" / "fixtures" / "harness"
NOWHERE = "http://127.0.0.1:9"


class Probes(NamedTuple):
    """A running stack, boto3's client for it, and what the stack complained of."""

    stack: Stack
    client: LambdaClient
    notices: list[str]

    def invoke(self, function: str, event: Any = None, **more: Any) -> "Invoked":
        """Invoke through boto3."""
        answer: Any = self.client.invoke(FunctionName=function, Payload=json.dumps(event), **more)
        with answer["Payload"] as body:
            text = body.read().decode()
        return Invoked(json.loads(text) if text else None, answer.get("FunctionError"), answer)


class Invoked(NamedTuple):
    """An answer: its payload decoded, the function's error if any, and boto3's whole answer."""

    payload: Any
    error: str | None
    response: Any


@contextmanager
def probes(template: str = "template.yaml", **options: Any) -> Iterator[Probes]:
    """A stack of the functions in `fixtures/harness`, without AWS unless `options` say otherwise."""
    notices: list[str] = []
    given = {"template": FOLDER / template, "aws": NOWHERE, "tick": 0, "retry_waits": (0.01, 0.01), **options}
    with Stack(Options(**given), notice=notices.append) as stack:
        client = boto3.client(
            "lambda",
            endpoint_url=stack.lambda_url,
            region_name=REGION,
            aws_access_key_id="local",
            aws_secret_access_key="local",
            config=Config(retries={"total_max_attempts": 1}, max_pool_connections=50, parameter_validation=False),
        )
        try:
            yield Probes(stack, client, notices)
        finally:
            client.close()
