"""Schedules, AWS's other services, and how a stack starts and refuses to."""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from duecourse_local.errors import HarnessError
from duecourse_local.harness.addresses import listen, url_of
from duecourse_local.harness.aws import emulator as aws_emulator
from duecourse_local.harness.aws.account import CREDENTIALS
from duecourse_local.harness.logs import Log, Logs
from duecourse_local.harness.options import Options, Precision
from duecourse_local.harness.stack import Stack
from tests.support.harness import FOLDER, NOWHERE, Probes, probes
from tests.support.wait import until

pytestmark = pytest.mark.slow


def test_a_tick_comes_at_its_pace_and_no_other_schedule_with_it(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with probes("scheduled.yaml", tick=1, precision=Precision.LINGER, environment={"NOTES": str(notes)}):
        lines = until(lambda: notes.exists() and len(notes.read_text().splitlines()) >= 3 and notes.read_text())
    found = [line.split() for line in lines.splitlines()]
    assert {source for _, source, _ in found} == {"aws.events"}
    assert all(time.endswith("Z") for _, _, time in found)


def test_a_tick_can_be_had_at_once(tmp_path: Path) -> None:
    with probes("scheduled.yaml", environment={"NOTES": str(tmp_path / "notes")}) as stack:
        assert stack.stack.tick() == {"Ticking": 1}
        assert stack.stack.tick() == {"Ticking": 2}


def test_a_function_that_is_not_to_be_warm_starts_at_its_first_event(tmp_path: Path) -> None:
    with probes("scheduled.yaml", environment={"NOTES": str(tmp_path / "notes")}, warm=["Yearly"]) as stack:
        assert {name: len(pids) for name, pids in stack.stack.pids()["functions"].items()} == {
            "Ticking": 0,
            "Yearly": 1,
        }
        assert stack.stack.tick() == {"Ticking": 1}
        assert len(stack.stack.pids()["functions"]["Ticking"]) == 1


def test_a_schedule_that_aws_rejects_is_named_and_the_stack_starts() -> None:
    with probes("scheduled.yaml") as stack:
        [notice] = [one for one in stack.notices if "schedule" in one]
    assert notice == (
        "A schedule is not kept: Yearly: YearlyNightly: ScheduleExpression cron(0 22-2 * * ? *): "
        "field 2 (hour): the range 22-2 must not go down; write 22-23,0-2"
    )


def test_a_target_that_names_no_function_here_is_told_at_the_start() -> None:
    targets = {"report": "lambda:Reprt", "echo": "lambda:Echo", "mail": "sqs:Mails"}
    with probes(environment={"DUECOURSE_TARGETS": json.dumps(targets)}, warm=()) as stack:
        [notice] = [one for one in stack.notices if "DUECOURSE_TARGETS" in one]
    assert notice == "DUECOURSE_TARGETS.report: template.yaml has no function Reprt, so tasks of this kind will fail"


def test_settings_in_the_hosts_environment_win_over_the_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUECOURSE_NAMESPACE", "mine")
    monkeypatch.setenv("DUECOURSE_LEASE", "PT5S")
    with probes(warm=["Echo"]) as stack:
        found = stack.invoke("Echo").payload["environment"]
    assert (found["DUECOURSE_NAMESPACE"], found["DUECOURSE_LEASE"]) == ("mine", "PT5S")


class Emulated:
    """A stack with an emulator of its own, and clients that are closed in the end."""

    def __init__(self, probes: Probes) -> None:
        self.probes = probes
        self._clients: list[Any] = []

    def client(self, service: str) -> Any:
        self._clients.append(self.probes.stack.session().client(service))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def received(self) -> dict[str, Any]:
        """The next message of the queue of failures."""
        sqs = self.client("sqs")
        url = sqs.get_queue_url(QueueName="failures")["QueueUrl"]
        messages = until(lambda: sqs.receive_message(QueueUrl=url).get("Messages"))
        sqs.delete_message(QueueUrl=url, ReceiptHandle=messages[0]["ReceiptHandle"])
        found: dict[str, Any] = json.loads(messages[0]["Body"])
        return found


@pytest.fixture(scope="module")
def emulated() -> Iterator[Emulated]:
    with probes("destinations.yaml", aws=None) as stack:
        found = Emulated(stack)
        yield found
        found.close()


def test_what_the_template_declares_is_there(emulated: Emulated) -> None:
    dynamodb, sqs = emulated.client("dynamodb"), emulated.client("sqs")
    assert sorted(dynamodb.list_tables()["TableNames"]) == ["Results", "Simple"]
    ttl = dynamodb.describe_time_to_live(TableName="Results")["TimeToLiveDescription"]
    assert (ttl["TimeToLiveStatus"], ttl["AttributeName"]) == ("ENABLED", "gone_at")
    url = sqs.get_queue_url(QueueName="failures")["QueueUrl"]
    assert sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Attributes"] == {
        "VisibilityTimeout": "7"
    }
    assert emulated.client("sesv2").get_email_identity(EmailIdentity="sender@example.com")["IdentityType"]
    assert len(emulated.client("sns").list_topics()["Topics"]) == 1


def test_an_event_that_fails_for_good_goes_to_its_destination(emulated: Emulated) -> None:
    emulated.probes.invoke("Failing", {"a": 1}, InvocationType="Event")
    record = emulated.received()
    assert record["requestContext"]["condition"] == "RetriesExhausted"
    assert record["requestContext"]["approximateInvokeCount"] == 2
    assert record["requestPayload"] == {"a": 1}
    assert record["responseContext"]["functionError"] == "Unhandled"
    assert record["responsePayload"]["errorType"] == "KeyError"


def test_an_event_that_grew_too_old_goes_to_its_destination_as_that(emulated: Emulated, tmp_path: Path) -> None:
    begun, over = tmp_path / "begun", tmp_path / "over"
    try:
        emulated.probes.invoke("Aging", {"file": str(begun), "until": str(over)}, InvocationType="Event")
        until(begun.exists)
        emulated.probes.invoke("Aging", {"a": 2}, InvocationType="Event")
        record = emulated.received()
    finally:
        over.touch()
    assert record["requestContext"]["condition"] == "EventAgeExceeded"
    assert record["requestContext"]["approximateInvokeCount"] == 0
    assert record["requestPayload"] == {"a": 2}
    assert record["responseContext"] == {"statusCode": 429}
    assert "responsePayload" not in record


def test_an_event_that_worked_goes_to_its_destination(emulated: Emulated) -> None:
    emulated.probes.invoke("Working", {"seconds": 0}, InvocationType="Event")
    record = json.loads(emulated.received()["Message"])
    assert record["requestContext"]["condition"] == "Success"


def test_somebodys_emulator_keeps_what_it_has(emulated: Emulated) -> None:
    with probes("destinations.yaml", aws=emulated.probes.stack.aws) as stack:
        assert stack.stack.aws == emulated.probes.stack.aws
    assert len(emulated.client("dynamodb").list_tables()["TableNames"]) == 2


def test_the_stacks_redis_keeps_its_data_in_the_state_folder(tmp_path: Path) -> None:
    with (
        probes("endless.yaml", state=tmp_path, init_limit=0.1) as stack,
        redis.Redis.from_url(stack.stack.store) as client,
    ):
        client.set("a", "1")
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("appendfsync") == {"appendfsync": "everysec"}
    with (
        probes("endless.yaml", state=tmp_path, init_limit=0.1) as stack,
        redis.Redis.from_url(stack.stack.store) as client,
    ):
        assert client.get("a") == b"1"


def listening() -> set[tuple[str, int]]:
    """The addresses at which this process and its children listen."""
    me = psutil.Process()
    found = [one for process in (me, *me.children(recursive=True)) for one in process.net_connections("inet")]
    return {(one.laddr.ip, one.laddr.port) for one in found if one.status == psutil.CONN_LISTEN}


def test_all_of_it_listens_on_loopback_only() -> None:
    before = listening()
    with probes("destinations.yaml", aws=None):
        opened = listening() - before
    assert len(opened) >= 4  # the API, Lambda's, the emulator, Redis, and one a function process
    assert {host for host, _ in opened} == {"127.0.0.1"}


def test_a_second_stack_on_the_same_state_folder_is_refused(tmp_path: Path) -> None:
    with (
        probes(state=tmp_path, warm=()),
        pytest.raises(HarnessError, match=r"another stack uses .*--state"),
        probes(state=tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("option", "field"), [("--port", "port"), ("--lambda-port", "lambda_port"), ("--aws-port", "aws_port")]
)
def test_a_port_in_use_is_named_with_its_option(option: str, field: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HarnessError, match=f"port {port} .*{option}"), probes(aws=None, **{field: port}):
            pass


async def beginning(log: Log) -> tuple[bool, bool]:
    """Of an emulator that ends before it answers: whether its port is taken as it begins, and when it has ended."""
    sock = listen(0, "--aws-port")
    url, port = url_of(sock), sock.getsockname()[1]
    process = await aws_emulator.start(sock, CREDENTIALS, log)
    before = is_taken(port)
    process.kill()
    await process.wait()
    with pytest.raises(HarnessError, match="the AWS emulator does not start: see its log"):
        await aws_emulator.wait_until_ready(url)
    return before, is_taken(port)


def is_taken(port: int) -> bool:
    try:
        listen(port, "").close()
    except HarnessError:
        return True
    return False


def test_the_emulators_port_is_its_own_before_it_answers_and_no_longer_than_it_lives(tmp_path: Path) -> None:
    log = Log(tmp_path, "aws")
    assert asyncio.run(beginning(log)) == (True, False)
    log.close()


def test_one_port_given_to_two_services_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(HarnessError, match=f"port {port} .*--lambda-port"), probes(port=port, lambda_port=port):
        pass


def test_a_state_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HarnessError, match=r"file cannot be used .*--state"), probes(state=tmp_path / "file"):
        pass


def test_a_wrong_setting_is_named_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUECOURSE_PARALLEL", "0")
    monkeypatch.setenv("DUECOURSE_LEASE", "soon")
    with pytest.raises(HarnessError, match=r"(?s)DUECOURSE_PARALLEL.*DUECOURSE_LEASE"), probes():
        pass


@pytest.mark.parametrize("aws", [NOWHERE, "nonsense"])
def test_aws_that_does_not_answer_is_named_and_nothing_else_is_told(aws: str) -> None:
    notices: list[str] = []
    options = Options(template=FOLDER / "destinations.yaml", aws=aws, tick=0)
    with pytest.raises(HarnessError, match=f"the AWS services at {aws}"), Stack(options, notice=notices.append):
        pass
    assert notices == []


def test_a_full_disk_stops_no_log(tmp_path: Path) -> None:
    (tmp_path / "redis.log").symlink_to("/dev/full")
    logs = Logs(tmp_path)
    logs.of("redis").write(b"no room for this")
    logs.close()


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        ("postgres://h/d", "DUECOURSE_STORE: must begin with redis://"),
        ("leveldb://folder", "DUECOURSE_STORE: must be leveldb:///<folder>, by its absolute path"),
        ("leveldb:///nowhere/ledger", "leveldb:///nowhere/ledger: /nowhere is no folder"),
        ("redis://127.0.0.1:9/0", "does not answer"),
        ("redis://ada:hunter2@127.0.0.1:9/0", r"the store at redis://ada:\*\*\*@127.0.0.1:9/0 does not answer"),
        ("redis://127.0.0.1:x/0", "a port of at most 65535"),
        ("redis://127.0.0.1:99999/0", "a port of at most 65535"),
    ],
)
def test_a_store_that_cannot_be_used_is_named(store: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duecourse_local.harness.stack_parts.STORE_WITHIN", 0.1)
    with pytest.raises(HarnessError, match=problem), probes(store=store):
        pass


def test_a_template_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="cannot be read"), probes(str(tmp_path / "none.yaml")):
        pass
