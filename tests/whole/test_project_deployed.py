"""A project that `duecourse init` wrote, built by sam and deployed by CloudFormation: the bundle is a nested stack.

`make localstack` runs this after the bundle's own deployment, against the same LocalStack.
"""

import json
import os
import platform
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from duecourse_local.cli.build import MACHINES
from duecourse_local.cli.project import write_project
from duecourse_local.harness.aws import emulator as aws_emulator
from duecourse_local.harness.options import LOOPBACK
from duecourse_local.harness.stack import Stack
from duecourse_local.project.place import BUNDLE
from tests.support.api import Api
from tests.support.capabilities import Emulator, emulator_at
from tests.support.commands import BARE
from tests.support.deploy import SENDER, Deployment, created, packaged, resources_of
from tests.support.matrix import LENGTHY
from tests.support.project import ROOT
from tests.support.redis_server import need, newest, on_a_port
from tests.support.remote import remote_stack
from tests.support.wait import until
from tests.support.wheel import build, installed

ENDPOINT = os.environ.get("AWS_ENDPOINT_URL")
SAM = ROOT / ".venv-sam/bin"
ARCHITECTURE = MACHINES[platform.machine()]

pytestmark = [pytest.mark.deployed, LENGTHY]


@pytest.fixture(scope="module")
def emulator() -> Emulator:
    if not ENDPOINT:
        pytest.skip("no AWS_ENDPOINT_URL: make localstack sets one")
    found = emulator_at(ENDPOINT)
    if not (found.deploys and found.here):
        pytest.skip(f"{found.name} deploys no functions that reach this machine, says the table")
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `duecourse build` made of a fresh project, by the command of the wheel."""
    project, dist = tmp_path_factory.mktemp("billing"), tmp_path_factory.mktemp("dist")
    duecourse = installed(build("wheel", dist), tmp_path_factory.mktemp("venv")) / "duecourse"
    write_project(project)
    template = project / "template.yaml"
    deployed = f"        Concurrency: 0\n        MailFrom: {SENDER}\n        MailIdentity: {SENDER}\n"
    kept = "        Namespace: !Ref Namespace\n"
    more = f"        Precision: bridge\n        EgressAllow: {LOOPBACK}\n"
    template.write_text(template.read_text().replace(kept, kept + deployed + more))
    environment = {**BARE, "PATH": f"{SAM}{os.pathsep}{os.environ['PATH']}", "SAM_CLI_TELEMETRY": "0"}
    environment["PIP_FIND_LINKS"] = f"{environment.get('PIP_FIND_LINKS', '')} {dist}"
    words = [duecourse, "build", "--parameter-overrides", f"Architecture={ARCHITECTURE}"]
    done = subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(BUNDLE) in done.stdout
    return project / ".aws-sam/build/template.yaml"


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with on_a_port(need(newest())) as url:
        yield url


@pytest.fixture(scope="module")
def deployment(emulator: Emulator, built: Path, store: str) -> Iterator[Deployment]:
    """Both stacks, their resources by logical id, as `sam deploy` would make them."""
    session = aws_emulator.session(str(ENDPOINT))
    stack = f"own-{secrets.token_hex(4)}"
    cloudformation, s3, bucket = session.client("cloudformation"), session.client("s3"), f"{stack}-code"
    secret = session.client("secretsmanager").create_secret(Name=f"{stack}/redis-url", SecretString=store)
    session.client("ses").verify_email_identity(EmailAddress=SENDER)
    s3.create_bucket(Bucket=bucket)
    given = {"Architecture": ARCHITECTURE, "RedisUrlSecret": secret["Name"], "Namespace": stack}
    outer = packaged(s3, bucket, emulator, given, built)
    application = outer["Resources"]["Duecourse"]["Properties"]
    inner = packaged(s3, bucket, emulator, _nested(application, given), built.parent / application["Location"])
    s3.put_object(Bucket=bucket, Key="inner.json", Body=json.dumps(inner))
    application["Location"] = f"{ENDPOINT}/{bucket}/inner.json"
    if not emulator.http_api:
        del outer["Outputs"]["ApiUrl"]
    with created(cloudformation, stack, outer, given) as names:
        yield Deployment(stack, {**resources_of(cloudformation, names["Duecourse"]), **names})


def _nested(application: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Parameters of the nested application, as far as its conditions ask for them."""
    lists = {"SubnetIds": [], "SecurityGroupIds": [], "TargetArns": ["one"], "Targets": '"report": "lambda:one"'}
    plain = {name: value for name, value in application["Parameters"].items() if not isinstance(value, Mapping)}
    return {**plain, **given, **lists}


@pytest.fixture(scope="module")
def stack(deployment: Deployment, store: str) -> Iterator[Stack]:
    session = aws_emulator.session(str(ENDPOINT))
    with remote_stack(session, deployment, store, str(ENDPOINT)) as running:
        yield running


def test_the_functions_of_both_stacks_are_there_by_their_names(deployment: Deployment) -> None:
    session = aws_emulator.session(str(ENDPOINT))
    named = [f["FunctionName"] for f in session.client("lambda").list_functions()["Functions"]]
    assert f"{deployment.stack}-report" in named
    assert deployment.names["OnExpiredFunction"] in named


def test_a_task_of_the_projects_own_function_is_done_by_the_deployed_stacks(
    stack: Stack, http: Any, deployment: Deployment
) -> None:
    api = Api(http, stack.api)
    api.post("/tasks", {"id": "first", "kind": "report", "payload": {"hello": "world"}, "delay": "PT1S"})
    done = until(lambda: task if (task := api.task("first"))["state"] == "done" else None, seconds=150, every=0.2)
    assert done["result"] == {"seen": {"hello": "world"}}
    kept = aws_emulator.session(str(ENDPOINT)).resource("dynamodb").Table(deployment.names["ResultsTable"])
    assert json.loads(kept.get_item(Key={"id": "default/-/first"})["Item"]["result"]) == done["result"]


def test_the_built_template_still_names_the_nested_one(built: Path) -> None:
    class Plain(yaml.SafeLoader):
        """Reads a template's tags as nothing."""

    Plain.add_multi_constructor("!", lambda *_: None)
    found = yaml.load(built.read_text(), Plain)  # noqa: S506 - a SafeLoader
    assert found["Resources"]["Duecourse"]["Properties"]["Location"] == "Duecourse/template.yaml"
