"""What the template grants, declares and hands to the functions."""

import functools
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import cfn_flip  # type: ignore[import-untyped]
import pytest

from duecourse.bridge.figures import NAMESPACE, UNITS
from duecourse.domain.times import parse_duration
from duecourse.settings import PREFIX, Settings, parse
from duecourse.wire.kinds import MAX_TIMEOUT_MS

TEMPLATE = Path(__file__).parents[2] / "template.yaml"
FUNCTIONS = (
    "EnqueueHttpFunction",
    "PollTickFunction",
    "OnExpiredFunction",
    "SendReminderFunction",
    "EnqueueMessageFunction",
)
WORKING = {
    ("dynamodb:PutItem", "ResultsTable.Arn"),
    ("lambda:InvokeFunction", "SendReminderFunction.Arn"),
    ("lambda:InvokeFunction", "TargetArns"),
    ("sqs:SendMessage", "ReminderMessages.Arn"),
    ("sqs:SendMessage", "TargetQueueArns"),
    ("sqs:GetQueueUrl", "TargetQueueArns"),
}
READING = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes")
"""What Lambda's poller does by the function's role."""
GRANTED = {
    "EnqueueHttpFunction": {("dynamodb:GetItem", "ResultsTable.Arn"), ("dynamodb:PutItem", "ResultsTable.Arn")},
    "PollTickFunction": WORKING,
    "OnExpiredFunction": WORKING,
    "SendReminderFunction": {
        ("dynamodb:PutItem", "ResultsTable.Arn"),
        ("ses:SendEmail", "identity/${Identity}"),
        *((action, "ReminderMessages.Arn") for action in READING),
    },
    "EnqueueMessageFunction": {(action, "IntakeMessages.Arn") for action in READING},
}
"""Every action that a function may take, and on what."""
PULLING = {"PullImage", "AskToPull"}
"""Statements on every image of the account: which one is in the parameter, in a form that no policy takes."""
SOURCES = {
    "ReminderSource": ("SendReminderFunction", "ReminderMessages", "ReminderDeadLetters", "QueuesReminders"),
    "IntakeSource": ("EnqueueMessageFunction", "IntakeMessages", "IntakeDeadLetters", "TakesMessages"),
}
"""Which function reads which queue, what that cannot deliver, and on what condition."""
ROUTES = {
    "POST /tasks", "GET /tasks/{id}", "PATCH /tasks/{id}", "DELETE /tasks/{id}",
    "POST /tasks/{id}/settle", "POST /tasks/{id}/extend", "POST /tasks/{id}/save",
    "POST /reminders", "GET /reminders/{id}", "PATCH /reminders/{id}", "DELETE /reminders/{id}",
    "GET /queues", "GET /queues/{queue}", "PATCH /queues/{queue}",
    "GET /health",
}  # fmt: skip


@cache
def template() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(cfn_flip.to_json(TEMPLATE.read_text()))
    return read


def properties(name: str) -> dict[str, Any]:
    found: dict[str, Any] = template()["Resources"][name]["Properties"]
    return found


def statements(node: Any) -> Iterator[dict[str, Any]]:
    """Every statement under a node, those behind a condition and in a policy referred to included."""
    if isinstance(node, list):
        for item in node:
            yield from statements(item)
    elif isinstance(node, dict) and "Effect" in node:
        yield node
    elif isinstance(node, dict) and set(node) == {"Ref"}:
        referred = template()["Resources"].get(node["Ref"], {})
        if referred.get("Type") == "AWS::IAM::ManagedPolicy":
            yield from statements(referred["Properties"]["PolicyDocument"])
    elif isinstance(node, dict):
        for item in node.values():
            yield from statements(item)


def actions(statement: dict[str, Any]) -> list[str]:
    action = statement["Action"]
    return action if isinstance(action, list) else [action]


def resource_of(statement: dict[str, Any]) -> str:
    """What a statement is about, in short."""
    ((how, what),) = statement["Resource"].items()
    if how == "Fn::Sub":
        return str(what[0]).rsplit(":", 1)[1]
    return ".".join(what) if isinstance(what, list) else str(what)


def timeouts_ms(name: str) -> list[int]:
    """A function's timeout, in each case where it depends on a condition."""
    timeout = properties(name)["Timeout"]
    return [seconds * 1000 for seconds in (timeout["Fn::If"][1:] if isinstance(timeout, dict) else [timeout])]


def users_own() -> set[str]:
    """The functions that a user has added."""
    kinds = {id: resource["Type"] for id, resource in template()["Resources"].items()}
    return {id for id, kind in kinds.items() if kind == "AWS::Serverless::Function"} - set(FUNCTIONS)


def environment(name: str) -> dict[str, Any]:
    shared = template()["Globals"]["Function"]["Environment"]["Variables"]
    return {**shared, **properties(name).get("Environment", {}).get("Variables", {})}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_may_do_what_its_work_takes_and_no_more(name: str) -> None:
    granted = {(a, resource_of(s)) for s in statements(properties(name)["Policies"]) for a in actions(s)}
    assert granted - {("lambda:InvokeFunction", f"{own}.Arn") for own in users_own()} == GRANTED[name]


@pytest.mark.parametrize("name", SOURCES)
def test_a_queue_is_read_message_by_message_and_keeps_what_fails(name: str) -> None:
    function, queue, dead, condition = SOURCES[name]
    assert properties(name) == {
        "EventSourceArn": {"Fn::GetAtt": [queue, "Arn"]},
        "FunctionName": {"Ref": function},
        "BatchSize": 10,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
    }
    assert properties(queue)["VisibilityTimeout"] == 6 * properties(function)["Timeout"]
    redrive = properties(queue)["RedrivePolicy"]
    assert redrive == {"deadLetterTargetArn": {"Fn::GetAtt": [dead, "Arn"]}, "maxReceiveCount": 5}
    resources = template()["Resources"]
    assert {resources[each]["Condition"] for each in (name, queue, dead)} == {condition}
    assert all(properties(each)["SqsManagedSseEnabled"] for each in (queue, dead))
    assert properties(dead)["MessageRetentionPeriod"] == 14 * 86_400


def test_a_queue_before_the_reminders_takes_the_place_of_their_invocation() -> None:
    [choice] = [s["Fn::If"] for s in policy_of_work() if "Fn::If" in s and s["Fn::If"][0] == "QueuesReminders"]
    assert [actions(statement) for statement in choice[1:]] == [["sqs:SendMessage"], ["lambda:InvokeFunction"]]


def policy_of_work() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = properties("WorkPolicy")["PolicyDocument"]["Statement"]
    return found


def test_the_bridge_may_invoke_one_function() -> None:
    (statement,) = statements(properties("BridgePolicy"))
    assert (statement["Action"], resource_of(statement)) == ("lambda:InvokeFunction", "OnExpiredFunction.Arn")


def test_no_policy_is_about_everything_but_where_an_image_is_pulled() -> None:
    for statement in statements(template()["Resources"]):
        assert "*" not in json.dumps(statement) or statement["Sid"] in PULLING, statement


def test_the_bridges_container_may_invoke_and_its_starter_read_one_secret_and_write_one_log() -> None:
    assert properties("BridgeTaskRole")["ManagedPolicyArns"] == [{"Ref": "BridgePolicy"}]
    assert "Policies" not in properties("BridgeTaskRole")
    starting = {s["Sid"]: s for s in statements(properties("BridgeExecutionRole")["Policies"])}
    assert starting.keys() == {"ReadStoreUrl", "WriteLog", *PULLING}
    assert starting["ReadStoreUrl"]["Action"] == "secretsmanager:GetSecretValue"
    assert "${RedisUrlSecret}-??????" in json.dumps(starting["ReadStoreUrl"]["Resource"])
    assert starting["WriteLog"]["Resource"] == {"Fn::GetAtt": ["BridgeLogs", "Arn"]}
    assert starting["AskToPull"]["Action"] == "ecr:GetAuthorizationToken"
    assert all(action.startswith("ecr:") for action in starting["PullImage"]["Action"])


def test_the_api_lets_nobody_in_without_a_signature() -> None:
    assert properties("Api")["Auth"] == {"EnableIamAuthorizer": True, "DefaultAuthorizer": "AWS_IAM"}
    events = properties("EnqueueHttpFunction")["Events"].values()
    assert all("Auth" not in event["Properties"] for event in events)


def test_every_route_of_the_api_leads_to_its_function() -> None:
    events = [event["Properties"] for event in properties("EnqueueHttpFunction")["Events"].values()]
    assert {f"{event['Method']} {event['Path']}" for event in events} == ROUTES
    assert len(events) == len(ROUTES)
    assert all(event["ApiId"] == {"Ref": "Api"} for event in events)


def test_the_tick_comes_once_a_minute() -> None:
    (tick,) = properties("PollTickFunction")["Events"].values()
    assert tick["Properties"]["Schedule"] == "rate(1 minute)"
    assert tick["Properties"]["RetryPolicy"] == {"MaximumRetryAttempts": 0}


def test_the_tick_has_room_of_its_own_and_the_bridges_rings_have_what_is_asked_for() -> None:
    reserved = {name: properties(name)["ReservedConcurrentExecutions"]["Fn::If"] for name in FUNCTIONS[1:3]}
    assert reserved["PollTickFunction"] == ["Reserves", 2, {"Ref": "AWS::NoValue"}]
    assert reserved["OnExpiredFunction"] == ["Reserves", {"Ref": "Concurrency"}, {"Ref": "AWS::NoValue"}]


def test_a_reminder_that_waited_past_its_lease_is_not_begun_and_one_that_fails_is_kept() -> None:
    config = properties("SendReminderFunction")["EventInvokeConfig"]
    lease_ms = parse_duration(template()["Parameters"]["Lease"]["Default"])
    assert config["MaximumEventAgeInSeconds"] * 1000 < lease_ms
    failed = config["DestinationConfig"]["OnFailure"]
    assert failed == {"Type": "SQS", "Destination": {"Fn::GetAtt": ["UndeliveredQueue", "Arn"]}}


def test_functions_stand_in_the_vpc_where_subnets_are_given() -> None:
    shared = template()["Globals"]["Function"]["VpcConfig"]["Fn::If"]
    inside = {"SubnetIds": {"Ref": "SubnetIds"}, "SecurityGroupIds": {"Ref": "SecurityGroupIds"}}
    assert shared == ["HasVpc", inside, {"Ref": "AWS::NoValue"}]
    assert "SubnetIds" in json.dumps(template()["Conditions"]["HasVpc"])


def test_a_lease_outlasts_every_function() -> None:
    lease_ms = parse_duration(template()["Parameters"]["Lease"]["Default"])
    assert all(timeout_ms < lease_ms for name in FUNCTIONS for timeout_ms in timeouts_ms(name))


def test_what_is_claimed_last_can_still_be_finished() -> None:
    margin_ms = Settings().margin_ms
    assert margin_ms > MAX_TIMEOUT_MS
    draining = ("PollTickFunction", "OnExpiredFunction")
    assert all(timeout_ms > margin_ms for name in draining for timeout_ms in timeouts_ms(name))


def test_a_lingering_tick_outlasts_the_start_of_the_next_and_is_over_before_the_one_after() -> None:
    minute_ms = 60_000
    condition, long_ms, _ = properties("PollTickFunction")["Timeout"]["Fn::If"]
    lingers, linger, none = environment("PollTickFunction")["DUECOURSE_TICK_LINGER"]["Fn::If"]
    assert (condition, lingers) == ("Lingers", "Lingers")
    linger_ms = parse({"DUECOURSE_TICK_LINGER": linger}).tick_linger_ms
    assert minute_ms + 2_000 <= linger_ms
    assert linger_ms + Settings().margin_ms < long_ms * 1000 < 2 * minute_ms
    assert parse({"DUECOURSE_TICK_LINGER": none}).tick_linger_ms == 0


def test_lambda_repeats_nothing_of_its_own_accord() -> None:
    assert template()["Globals"]["Function"]["EventInvokeConfig"] == {"MaximumRetryAttempts": 0}
    assert all("MaximumRetryAttempts" not in properties(name).get("EventInvokeConfig", {}) for name in FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_variable_given_to_a_function_is_a_setting(name: str) -> None:
    known = {field.alias or key for key, field in Settings.model_fields.items()}
    given = {key.removeprefix(PREFIX).lower() for key in environment(name) if key.startswith(PREFIX)}
    assert given <= known


def test_the_parameters_defaults_are_settings_that_pass() -> None:
    shared = environment("OnExpiredFunction")
    named = {key: value["Ref"] for key, value in shared.items() if key.startswith(PREFIX) and "Ref" in value}
    defaults = template()["Parameters"]
    parse({key: str(defaults[ref]["Default"]) for key, ref in named.items() if ref in defaults})


def test_the_url_of_the_store_comes_from_a_secret() -> None:
    for name in FUNCTIONS:
        assert environment(name)["DUECOURSE_STORE"] == {"Fn::Sub": "{{resolve:secretsmanager:${RedisUrlSecret}}}"}


@pytest.mark.parametrize(
    ("members", "kinds"),
    [
        ("", {}),
        ('"yours": "lambda:YourFunction"', {"yours": "lambda:YourFunction"}),
        ('"a":"lambda:A", "b.c" : "lambda:B"', {"a": "lambda:A", "b.c": "lambda:B"}),
        ('"a": "sqs:bills.fifo", "b": "amqp:mails"', {"a": "sqs:bills.fifo", "b": "amqp:mails"}),
        (
            '"a": "sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/bills"',
            {"a": "sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/bills"},
        ),
    ],
)
def test_kinds_of_the_users_own_join_the_reminder(members: str, kinds: dict[str, str]) -> None:
    condition, joined, alone = environment("OnExpiredFunction")["DUECOURSE_TARGETS"]["Fn::If"]
    assert condition == "HasTargets"
    text, given = (joined if members else alone)["Fn::Sub"]
    assert given["Reminders"]["Fn::If"] == [
        "QueuesReminders", {"Fn::Sub": "sqs:${ReminderMessages}"}, {"Fn::Sub": "lambda:${SendReminderFunction}"}
    ]  # fmt: skip
    text = text.replace("${Reminders}", "lambda:Send").replace("${Targets}", members)
    own = {f"lambda:${{{id}}}": f"lambda:{id}" for id in users_own()}
    text = functools.reduce(lambda made, pair: made.replace(*pair), own.items(), text)
    found = parse({"DUECOURSE_TARGETS": text, "DUECOURSE_AMQP": "amqps://broker/"})
    known = {kind: target for kind, target in found.targets.items() if target not in own.values()}
    assert known == {"reminder": "lambda:Send", **kinds}
    assert re.fullmatch(template()["Parameters"]["Targets"]["AllowedPattern"], members)


@pytest.mark.parametrize(
    "members", ['{"a": "lambda:A"}', '"a": "lambda:A",', '"a"', '"a": "inline"', '"a": "lambda:A" "b": "lambda:B"']
)
def test_targets_that_would_not_join_are_refused_at_deployment(members: str) -> None:
    assert not re.fullmatch(template()["Parameters"]["Targets"]["AllowedPattern"], members)


def test_a_result_leaves_the_table_by_itself() -> None:
    table = properties("ResultsTable")
    assert table["KeySchema"] == [{"AttributeName": "id", "KeyType": "HASH"}]
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}


def test_results_outlive_the_stack() -> None:
    table = template()["Resources"]["ResultsTable"]
    assert (table["DeletionPolicy"], table["UpdateReplacePolicy"]) == ("Retain", "Retain")


@pytest.mark.parametrize(
    ("name", "metric", "threshold"), [("OverdueAlarm", "OldestOverdue", 120_000), ("DeadAlarm", "Dead", 0)]
)
def test_an_alarm_watches_what_the_tick_measures(name: str, metric: str, threshold: int) -> None:
    alarm = properties(name)
    assert (alarm["MetricName"], alarm["Threshold"], alarm["ComparisonOperator"]) == (
        metric,
        threshold,
        "GreaterThanThreshold",
    )
    assert alarm["Namespace"] == environment("PollTickFunction")["POWERTOOLS_METRICS_NAMESPACE"]
    service = environment("PollTickFunction")["POWERTOOLS_SERVICE_NAME"]
    assert alarm["Dimensions"] == [{"Name": "service", "Value": service}]
    assert f'"{metric}"' in (TEMPLATE.parent / "functions/poll_tick/app.py").read_text()


@pytest.mark.parametrize(
    ("name", "silence", "seconds"), [("OverdueAlarm", "breaching", 120), ("DeadAlarm", "notBreaching", 60)]
)
def test_an_alarm_goes_within_minutes_and_tells_somebody(name: str, silence: str, seconds: int) -> None:
    alarm = properties(name)
    assert alarm["Statistic"] == "Maximum"
    assert alarm["Period"] * alarm["EvaluationPeriods"] == seconds
    assert alarm["TreatMissingData"] == silence  # a tick that is silent measures nothing: that is overdue, not well
    topic = {"Fn::If": ["MakesTopic", {"Ref": "AlarmTopic"}, {"Ref": "AlarmTopicArn"}]}
    assert alarm["AlarmActions"] == alarm["OKActions"] == [topic]


def test_the_bridge_stands_only_where_it_is_asked_for_and_has_an_image() -> None:
    assert template()["Parameters"]["Precision"] == {
        "Type": "String",
        "Default": "linger",
        "AllowedValues": ["tick", "linger", "bridge"],
        "Description": template()["Parameters"]["Precision"]["Description"],
    }
    wanted = template()["Conditions"]["RunsBridge"]["Fn::And"]
    assert wanted == [{"Fn::Equals": [{"Ref": "Precision"}, "bridge"]}, {"Condition": "HasBridgeImage"}]
    parts = {name for name, found in template()["Resources"].items() if found["Type"].startswith("AWS::ECS")}
    assert parts == {"BridgeCluster", "BridgeService", "BridgeTask"}
    conditional = {name for name, found in template()["Resources"].items() if found.get("Condition") == "RunsBridge"}
    assert conditional == parts | {"BridgeExecutionRole", "BridgeTaskRole", "BridgeLogs", "BridgeAlarm"}


def test_the_bridges_container_is_given_settings_a_secret_and_nothing_to_write_to() -> None:
    (container,) = properties("BridgeTask")["ContainerDefinitions"]
    named = {variable["Name"] for variable in container["Environment"]}
    known = {PREFIX + (field.alias or key).upper() for key, field in Settings.model_fields.items()}
    assert {name for name in named if name.startswith(PREFIX)} <= known
    assert [secret["Name"] for secret in container["Secrets"]] == ["DUECOURSE_STORE"]
    assert container["ReadonlyRootFilesystem"] is True
    assert properties("BridgeTask")["RuntimePlatform"]["CpuArchitecture"] == {"Fn::If": ["OnArm", "ARM64", "X86_64"]}
    service = environment("PollTickFunction")["POWERTOOLS_SERVICE_NAME"]
    assert {"Name": "POWERTOOLS_SERVICE_NAME", "Value": service} in container["Environment"]


def test_a_new_bridge_rings_before_the_old_one_stops() -> None:
    deployment = properties("BridgeService")["DeploymentConfiguration"]
    assert (deployment["MinimumHealthyPercent"], deployment["MaximumPercent"]) == (100, 200)
    network = properties("BridgeService")["NetworkConfiguration"]["Fn::If"][1]["AwsvpcConfiguration"]
    assert network["AssignPublicIp"] == "DISABLED"


def test_an_alarm_goes_when_the_bridge_tells_nothing_of_itself() -> None:
    alarm = properties("BridgeAlarm")
    assert alarm["MetricName"] in UNITS
    assert (alarm["Namespace"], alarm["Statistic"], alarm["TreatMissingData"]) == (
        NAMESPACE,
        "SampleCount",
        "breaching",
    )
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (1, "LessThanThreshold")
    told_by_tick = (TEMPLATE.parent / "functions/poll_tick/app.py").read_text()
    assert f'"{alarm["MetricName"]}"' not in told_by_tick, "a tick would hide the bridge's silence"


def test_the_dashboard_shows_metrics_that_something_tells() -> None:
    body = json.loads(re.sub(r"\$\{[^}]+\}", "x", properties("Dashboard")["DashboardBody"]["Fn::Sub"]))
    shown = {metric[1] for widget in body["widgets"] for metric in widget["properties"]["metrics"]}
    assert shown == {"OldestOverdue", "Lateness", "Added", "Done", "Retried", "Dead"}
    told = "".join(path.read_text() for path in (TEMPLATE.parent / "functions").glob("*/app.py"))
    assert all(f'"{name}"' in told for name in shown)
    assert "Lateness" in UNITS


def test_the_layer_is_built_for_the_architecture_that_the_functions_run_on() -> None:
    layer = template()["Resources"]["CoreLayer"]
    assert layer["Metadata"]["BuildArchitecture"] == {"Ref": "Architecture"}
    folder = TEMPLATE.parent / layer["Metadata"]["WorkingDirectory"]["Fn::Sub"].split("${")[0]
    allowed = template()["Parameters"]["Architecture"]["AllowedValues"]
    assert {path.parent.name for path in folder.glob("*/platform.txt")} == set(allowed)
    assert template()["Globals"]["Function"]["Architectures"] == [{"Ref": "Architecture"}]
    assert template()["Parameters"]["Architecture"]["Default"] == "arm64"


def test_the_layer_holds_bytecode_for_the_python_that_the_functions_run_on() -> None:
    runtime = template()["Globals"]["Function"]["Runtime"]
    assert properties("CoreLayer")["CompatibleRuntimes"] == [runtime]
    assert (
        f"--python-version {runtime.removeprefix('python')} " in (TEMPLATE.parent / "layers/core/Makefile").read_text()
    )
