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

from duecourse.domain.times import parse_duration
from duecourse.settings import PREFIX, Settings, parse
from duecourse.wire.kinds import MAX_TIMEOUT_MS

TEMPLATE = Path(__file__).parents[2] / "template.yaml"
FUNCTIONS = ("EnqueueHttpFunction", "PollTickFunction", "OnExpiredFunction", "SendReminderFunction")
WORKING = {
    ("dynamodb:PutItem", "ResultsTable.Arn"),
    ("lambda:InvokeFunction", "SendReminderFunction.Arn"),
    ("lambda:InvokeFunction", "TargetArns"),
}
GRANTED = {
    "EnqueueHttpFunction": {("dynamodb:GetItem", "ResultsTable.Arn"), ("dynamodb:PutItem", "ResultsTable.Arn")},
    "PollTickFunction": WORKING,
    "OnExpiredFunction": WORKING,
    "SendReminderFunction": {("dynamodb:PutItem", "ResultsTable.Arn"), ("ses:SendEmail", "identity/${Identity}")},
}
"""Every action that a function may take, and on what."""
ROUTES = {
    "POST /tasks", "GET /tasks/{id}", "PATCH /tasks/{id}", "DELETE /tasks/{id}",
    "POST /tasks/{id}/settle", "POST /tasks/{id}/extend", "POST /tasks/{id}/save",
    "POST /reminders", "GET /reminders/{id}", "PATCH /reminders/{id}", "DELETE /reminders/{id}",
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


def resource_of(statement: dict[str, Any]) -> str:
    """What a statement is about, in short."""
    ((how, what),) = statement["Resource"].items()
    if how == "Fn::Sub":
        return str(what[0]).rsplit(":", 1)[1]
    return ".".join(what) if isinstance(what, list) else str(what)


def users_own() -> set[str]:
    """The functions that a user has added."""
    kinds = {id: resource["Type"] for id, resource in template()["Resources"].items()}
    return {id for id, kind in kinds.items() if kind == "AWS::Serverless::Function"} - set(FUNCTIONS)


def environment(name: str) -> dict[str, Any]:
    shared = template()["Globals"]["Function"]["Environment"]["Variables"]
    return {**shared, **properties(name).get("Environment", {}).get("Variables", {})}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_may_do_what_its_work_takes_and_no_more(name: str) -> None:
    granted = {(s["Action"], resource_of(s)) for s in statements(properties(name)["Policies"])}
    assert granted - {("lambda:InvokeFunction", f"{own}.Arn") for own in users_own()} == GRANTED[name]


def test_the_bridge_may_invoke_one_function() -> None:
    (statement,) = statements(properties("BridgePolicy"))
    assert (statement["Action"], resource_of(statement)) == ("lambda:InvokeFunction", "OnExpiredFunction.Arn")


def test_no_policy_is_about_everything() -> None:
    for statement in statements(template()["Resources"]):
        assert "*" not in json.dumps(statement), statement


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
    assert all(properties(name)["Timeout"] * 1000 < lease_ms for name in FUNCTIONS)


def test_what_is_claimed_last_can_still_be_finished() -> None:
    margin_ms = Settings().margin_ms
    assert margin_ms > MAX_TIMEOUT_MS
    assert all(properties(name)["Timeout"] * 1000 > margin_ms for name in ("PollTickFunction", "OnExpiredFunction"))


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
    ],
)
def test_kinds_of_the_users_own_join_the_reminder(members: str, kinds: dict[str, str]) -> None:
    condition, joined, alone = environment("OnExpiredFunction")["DUECOURSE_TARGETS"]["Fn::If"]
    assert condition == "HasTargets"
    text = (joined if members else alone)["Fn::Sub"]
    text = text.replace("${SendReminderFunction}", "Send").replace("${Targets}", members)
    own = {f"lambda:${{{id}}}": f"lambda:{id}" for id in users_own()}
    found = parse({"DUECOURSE_TARGETS": functools.reduce(lambda made, pair: made.replace(*pair), own.items(), text)})
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
