"""The built template, deployed by CloudFormation to an emulator or an account, and the stories played against it.

`make localstack` runs this against a LocalStack of its own; with AWS_ENDPOINT_URL set it is whatever answers there,
and with DUECOURSE_E2E=aws an account of yours (DUECOURSE_STORE then names a Redis that its functions and this reach).
"""

import io
import json
import os
import platform
import secrets
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from duecourse_local.cli.build import MACHINES
from duecourse_local.demo import stories
from duecourse_local.demo.fake_services import FakeServices
from duecourse_local.harness import redis_server
from duecourse_local.harness.aws import emulator as aws_emulator
from duecourse_local.harness.stack import Stack
from tests.support.capabilities import TABLE, Emulator, emulator_at
from tests.support.deploy import BUILT, Deployment, deployed
from tests.support.functions import saved
from tests.support.matrix import LENGTHY
from tests.support.redis_server import need, newest, on_a_port
from tests.support.remote import RemoteStage, remote_stack
from tests.support.wait import until

ENDPOINT = os.environ.get("AWS_ENDPOINT_URL")
ACCOUNT = os.environ.get("DUECOURSE_E2E") == "aws"

pytestmark = [pytest.mark.deployed, LENGTHY]


@pytest.fixture(scope="module")
def emulator() -> Emulator:
    if not ENDPOINT and not ACCOUNT:
        pytest.skip("no AWS_ENDPOINT_URL: make localstack sets one, DUECOURSE_E2E=aws means an account")
    return emulator_at(None if ACCOUNT else ENDPOINT)


@pytest.fixture(scope="module")
def session(emulator: Emulator) -> Any:
    return boto3.Session() if emulator.name == "aws" else aws_emulator.session(str(ENDPOINT))


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The ledger's URL: the user's, or a Redis of the test's own."""
    given = redis_server.given_store(None)
    if given:
        yield given
        return
    with on_a_port(need(newest())) as url:
        yield url


@pytest.fixture(scope="module")
def deployment(emulator: Emulator, session: Any, store: str) -> Iterator[Deployment]:
    if not emulator.deploys:
        pytest.skip(f"{emulator.name} deploys no functions, says the table")
    assert BUILT.exists(), "make localstack builds it: sam build --build-dir .aws-sam/here"
    with deployed(session, emulator, store, MACHINES[platform.machine()]) as found:
        yield found


@pytest.fixture(scope="module")
def stack(session: Any, deployment: Deployment, store: str) -> Iterator[Stack]:
    with remote_stack(session, deployment, store, str(ENDPOINT or "https://aws")) as running:
        yield running


@pytest.fixture(scope="module")
def stage(stack: Stack, emulator: Emulator) -> Iterator[RemoteStage]:
    if not emulator.here:
        pytest.skip(f"the functions of {emulator.name} do not reach the stories' servers, says the table")
    # A first start may take an emulator longer than the stories' meetings are ahead.
    stack.invoke("SendReminderFunction", saved("send_reminder/bad_source"))
    with FakeServices() as services:
        made = RemoteStage(stack, services)
        made.begin(emulator)
        yield made


def test_the_deployed_functions_answer_saved_events(stack: Stack, emulator: Emulator) -> None:
    found = {}
    for function, case in (
        ("EnqueueHttpFunction", "enqueue_http/health"),
        ("EnqueueHttpFunction", "enqueue_http/bad_fields"),
        ("PollTickFunction", "poll_tick/rule"),
        ("OnExpiredFunction", "on_expired/bad_shape"),
    ):
        answer = stack.invoke(function, saved(case))
        found[case] = (answer.error, json.loads(answer.payload))
    assert found["enqueue_http/health"][1]["statusCode"] == 200
    assert found["enqueue_http/bad_fields"][1]["statusCode"] == 422
    assert found["poll_tick/rule"][0] is None
    assert found["on_expired/bad_shape"][0] == "Unhandled"
    assert (found["on_expired/bad_shape"][1]["errorType"] == "InvalidInput") == emulator.errors


STORIES = [stories.poll, stories.meetings, stories.webhook, stories.batch]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_story_of_the_demo_holds(stage: RemoteStage, story: Any) -> None:
    told = story(stage)()
    print(told.title, *told.lines, sep="\n  ")


def test_a_function_that_cannot_start_is_the_attempts_error_and_once_it_can_the_task_is_done(
    stage: RemoteStage, session: Any, deployment: Deployment, emulator: Emulator
) -> None:
    if not emulator.destinations:
        pytest.skip(f"{emulator.name} sends no records of what failed, says the table")

    def standing() -> Any:
        return stage.call("GET", f"/tasks/{id}?queue=reminders", expect=200)["task"]

    def recorded() -> str:
        error = standing().get("error", "")
        return error if "RetriesExhausted" in error else ""

    with unable_to_start(session.client("lambda"), deployment.names["SendReminderFunction"]):
        id = reminded_at_once(stage)
        # LocalStack was seen to lose an event a second after the function had changed: its delivery lapses after 2 min.
        error = until(recorded, seconds=200, every=0.5)
    assert deployment.names["SendReminderFunction"] in error
    assert ("Runtime.ImportModuleError" in error) == emulator.errors
    # Its backoff has grown by as much as it took to mend the function.
    done = until(lambda: task if (task := standing())["state"] == "done" else None, seconds=150, every=0.5)
    assert "retry" in [run["outcome"] for run in done["history"]]


@contextmanager
def unable_to_start(client: Any, name: str) -> Iterator[None]:
    """The function without its module; mended in the end."""

    def set_handler(handler: str) -> None:
        client.update_function_configuration(FunctionName=name, Handler=handler)
        client.get_waiter("function_updated_v2").wait(FunctionName=name)

    mended = client.get_function_configuration(FunctionName=name)["Handler"]
    set_handler("absent.handler")
    try:
        yield
    finally:
        set_handler(mended)


def reminded_at_once(stage: RemoteStage) -> str:
    """The task of a reminder that is due in a second, long before what it tells of."""
    starts_at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    body = {"id": "review", "subject": "review", "message": "m", "starts_at": starts_at, "remind_before": ["PT59M59S"]}
    recipients = [{"name": "Ada", "email": "ada@example.com"}]
    made = stage.call("POST", "/reminders", {**body, "recipients": recipients}, expect=201)
    return str(made["tasks"][0]["id"])


def test_without_a_bridge_the_deployed_tick_finds_what_is_due(stage: RemoteStage, emulator: Emulator) -> None:
    if not emulator.schedules:
        pytest.skip(f"schedules do not fire on {emulator.name}, says the table")
    ending = stories.ringer_killed(stage)
    until(lambda: stage.services.deliveries["/hooks/meanwhile"], seconds=130, every=0.5)
    ending()


PROBE = """
import os, time
def handler(event, context):
    if event["do"] == "raise":
        raise KeyError("no such thing")
    if event["do"] == "leave":
        os._exit(3)
    time.sleep(event.get("seconds", 0))
    return {"pid": os.getpid()}
"""


@pytest.fixture
def probe(emulator: Emulator, session: Any) -> Iterator[Any]:
    """Invokes a function of a few lines, one second its timeout, and answers (error, payload)."""
    if not emulator.here or not emulator.runs:
        pytest.skip(f"it needs no role and runs functions here, which {emulator.name} does not, says the table")
    client, name = session.client("lambda"), "probe"
    code = {"ZipFile": archive_of(app=PROBE)}
    role = "arn:aws:iam::000000000000:role/probe"
    client.create_function(
        FunctionName=name, Runtime="python3.11", Handler="app.handler", Role=role, Code=code, Timeout=1
    )
    client.get_waiter("function_active_v2").wait(FunctionName=name)

    def invoke(**event: Any) -> tuple[str | None, Any]:
        answer = client.invoke(FunctionName=name, Payload=json.dumps(event))
        with answer["Payload"] as body:
            return answer.get("FunctionError"), json.loads(body.read())

    yield invoke
    client.delete_function(FunctionName=name)


def test_an_emulated_function_is_kept_warm_and_ended_as_lambda_does_it(probe: Any, emulator: Emulator) -> None:
    first, again = probe(do="sleep"), probe(do="sleep")
    assert first == again
    error, told = probe(do="raise")
    assert error == "Unhandled"
    assert (told["errorType"] == "KeyError") == emulator.errors
    if not emulator.errors:
        return  # nor do the others carry theirs
    assert "timed out after 1.00 seconds" in probe(do="sleep", seconds=30)[1]["errorMessage"]
    assert probe(do="leave")[1]["errorType"] == "Runtime.ExitError"
    error, after = probe(do="sleep")
    assert (error, after != first[1]) == (None, True)


@pytest.fixture(scope="module", params=["moto", "endpoint"])
def claimed(request: pytest.FixtureRequest) -> Iterator[tuple[Emulator, Any]]:
    """A row of the table, and a session with the emulator that it is about."""
    if request.param == "endpoint":
        found: Emulator = request.getfixturevalue("emulator")
        yield found, request.getfixturevalue("session")
        return
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("AWS_ENDPOINT_URL", raising=False)
        with Stack() as running:
            yield TABLE["moto"], running.session()


def refused(call: Any, **arguments: Any) -> bool:
    try:
        call(**arguments)
    except Exception as error:  # noqa: BLE001 - whatever it says by way of no
        print(f"{type(error).__name__}: {error}")
        return True
    return False


def test_the_table_tells_whether_http_apis_can_be_made(claimed: tuple[Emulator, Any]) -> None:
    row, session = claimed
    assert refused(session.client("apigatewayv2").create_api, Name="probe", ProtocolType="HTTP") != row.http_api


def test_the_table_tells_whether_ses_has_its_second_version(claimed: tuple[Emulator, Any]) -> None:
    row, session = claimed
    assert refused(session.client("sesv2").create_email_identity, EmailIdentity="probe@example.com") != row.ses_v2


def test_the_table_tells_whether_a_sam_template_makes_functions(
    claimed: tuple[Emulator, Any], request: pytest.FixtureRequest
) -> None:
    row, session = claimed
    if row.deploys:
        request.getfixturevalue("deployment")
        assert "EnqueueHttpFunction" in _functions(session)
        return
    properties = {"Runtime": "python3.11", "Handler": "index.handler", "InlineCode": "def handler(e, c): return 7"}
    body = {
        "Transform": "AWS::Serverless-2016-10-31",
        "Resources": {"Seven": {"Type": "AWS::Serverless::Function", "Properties": properties}},
    }
    session.client("cloudformation").create_stack(StackName="seven", TemplateBody=json.dumps(body))
    assert "Seven" not in _functions(session)


def _functions(session: Any) -> str:
    return str([f["FunctionName"] for f in session.client("lambda").list_functions()["Functions"]])


LAYERED = """
def handler(event, context):
    try:
        import of_the_layer
    except ImportError:
        return {"ran": True, "layer": False}
    return {"ran": True, "layer": True}
"""


def archive_of(**files: str) -> bytes:
    """An archive of Python modules, by name (__ for a slash)."""
    with io.BytesIO() as made:
        with zipfile.ZipFile(made, "w") as archive:
            for name, text in files.items():
                archive.writestr(f"{name.replace('__', '/')}.py", text)
        return made.getvalue()


def test_the_table_tells_whether_functions_run_and_layers_are_applied(claimed: tuple[Emulator, Any]) -> None:
    row, session = claimed
    client, iam, name = session.client("lambda"), session.client("iam"), f"probe-{secrets.token_hex(4)}"
    trust = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=policy)["Role"]["Arn"]
    content = {"ZipFile": archive_of(python__of_the_layer="")}
    layer = client.publish_layer_version(LayerName=name, Content=content, CompatibleRuntimes=["python3.11"])
    client.create_function(
        FunctionName=name,
        Runtime="python3.11",
        Handler="app.handler",
        Role=role,
        Code={"ZipFile": archive_of(app=LAYERED)},
        Layers=[layer["LayerVersionArn"]],
    )
    client.get_waiter("function_active_v2").wait(FunctionName=name)
    with client.invoke(FunctionName=name, Payload=b"{}")["Payload"] as body:
        text = body.read().decode()
    client.delete_function(FunctionName=name)
    iam.delete_role(RoleName=name)
    assert ('"ran"' in text) == row.runs
    if row.runs:
        assert json.loads(text)["layer"] == row.layers
