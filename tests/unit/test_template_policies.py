"""What the template grants, declares and hands to the functions."""

import functools
import json
import re
from typing import Any

import pytest

from duecourse.domain.times import format_duration, parse_duration
from duecourse.settings import PREFIX, Settings, parse, variables
from duecourse.wire.http.kinds import MAX_TIMEOUT_MS
from tests.support.described import TEMPLATE, actions, environment, properties, resource_of, statements, template

FUNCTIONS = (
    "EnqueueHttpFunction",
    "PollTickFunction",
    "OnExpiredFunction",
    "SendReminderFunction",
    "EnqueueMessageFunction",
    "OnUndeliveredFunction",
)
LAYERS = ("CoreLayer", "TemplatesLayer")
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
        ("sns:Publish", "all but sns:*:*:*"),
        *((action, "ReminderMessages.Arn") for action in READING),
    },
    "EnqueueMessageFunction": {(action, "IntakeMessages.Arn") for action in READING},
    "OnUndeliveredFunction": {(action, "UndeliveredQueue.Arn") for action in READING},
}
"""Every action that a function may take, and on what."""
PULLING = {"PullImage", "AskToPull"}
"""Statements on every image of the account: which one is in the parameter, in a form that no policy takes."""
SOURCES = {
    "ReminderSource": ("SendReminderFunction", "ReminderMessages", "ReminderDeadLetters", "QueuesReminders"),
    "UndeliveredSource": ("OnUndeliveredFunction", "UndeliveredQueue", "UndeliveredDeadLetters", ""),
    "IntakeSource": ("EnqueueMessageFunction", "IntakeMessages", "IntakeDeadLetters", "TakesMessages"),
}
"""Which function reads which queue, what that cannot deliver, and on what condition."""
ROUTES = {
    "POST /tasks", "POST /tasks/batch", "GET /tasks", "GET /tasks/{id}", "GET /tasks/{id}/why",
    "POST /tasks/{id}/replay", "POST /queues/{queue}/dead/replay", "PATCH /tasks/{id}", "DELETE /tasks/{id}",
    "POST /tasks/{id}/begin", "POST /tasks/{id}/settle", "POST /tasks/{id}/extend", "POST /tasks/{id}/save",
    "POST /reminders", "POST /reminders/preview",
    "GET /reminders/{id}", "PATCH /reminders/{id}", "DELETE /reminders/{id}",
    "GET /queues", "GET /queues/{queue}", "PATCH /queues/{queue}",
    "POST /queries", "GET /queries/{id}",
    "GET /health", "GET /openapi.json", "GET /docs",
}  # fmt: skip


def timeouts_ms(name: str) -> list[int]:
    """A function's timeout, in each case where it depends on a condition."""
    timeout = properties(name)["Timeout"]
    return [seconds * 1000 for seconds in (timeout["Fn::If"][1:] if isinstance(timeout, dict) else [timeout])]


def users_own() -> set[str]:
    """The functions that a user has added."""
    kinds = {id: resource["Type"] for id, resource in template()["Resources"].items()}
    return {id for id, kind in kinds.items() if kind == "AWS::Serverless::Function"} - set(FUNCTIONS)


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
    assert {resources[each].get("Condition", "") for each in (name, queue, dead)} == {condition}
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
        assert "*" not in json.dumps(statement) or statement["Sid"] in {*PULLING, "SendSms"}, statement


def test_a_message_may_be_published_to_a_number_and_to_no_topic_or_device() -> None:
    [choice] = [
        p["Fn::If"] for p in properties("SendReminderFunction")["Policies"] if p.get("Fn::If", [""])[0] == "HasSms"
    ]
    [statement] = statements(choice[1])
    assert statement["NotResource"] == {"Fn::Sub": "arn:${AWS::Partition}:sns:*:*:*"}
    assert (statement["Action"], "Resource" in statement, choice[2]) == ("sns:Publish", False, {"Ref": "AWS::NoValue"})
    assert template()["Conditions"]["HasSms"] == {"Fn::Equals": [{"Ref": "Sms"}, "sns"]}
    assert template()["Parameters"]["Sms"]["Default"] == "none"


@pytest.mark.parametrize("sender", ["", "+436641234567", "12345", "Duecourse", "a1"])
def test_whom_an_sms_comes_from_is_a_setting_that_passes(sender: str) -> None:
    assert re.fullmatch(template()["Parameters"]["SmsFrom"]["AllowedPattern"], sender)
    assert parse({"DUECOURSE_SMS_FROM": sender}).sms_from == sender


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_layer_of_templates_is_there_for_those_who_write_reminders_alone(name: str) -> None:
    writes = name in {"EnqueueHttpFunction", "SendReminderFunction"}
    assert properties(name).get("Layers") == ([{"Ref": "TemplatesLayer"}] if writes else None)
    assert template()["Globals"]["Function"]["Layers"] == [{"Ref": "CoreLayer"}]


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


def test_ticks_that_were_held_up_do_not_come_all_at_once_afterwards() -> None:
    assert properties("PollTickFunction")["EventInvokeConfig"] == {"MaximumEventAgeInSeconds": 60}


def test_the_tick_has_room_of_its_own_and_the_bridges_rings_have_what_is_asked_for() -> None:
    reserved = {name: properties(name)["ReservedConcurrentExecutions"]["Fn::If"] for name in FUNCTIONS[1:3]}
    assert reserved["PollTickFunction"] == ["Reserves", 2, {"Ref": "AWS::NoValue"}]
    assert reserved["OnExpiredFunction"] == ["Reserves", {"Ref": "Concurrency"}, {"Ref": "AWS::NoValue"}]


def test_a_delivery_outlasts_the_events_age_and_the_function_and_one_that_fails_is_told() -> None:
    config = properties("SendReminderFunction")["EventInvokeConfig"]
    delivery_ms = parse_duration(template()["Parameters"]["DeliveryLease"]["Default"])
    whole_s = config["MaximumEventAgeInSeconds"] + properties("SendReminderFunction")["Timeout"]
    assert whole_s * 1_000 < delivery_ms
    variables = template()["Globals"]["Function"]["Environment"]["Variables"]
    assert variables["DUECOURSE_DELIVERY_LEASE"] == {"Ref": "DeliveryLease"}
    assert variables["DUECOURSE_OUTSTANDING"] == {"Ref": "Outstanding"}
    assert template()["Parameters"]["Outstanding"]["Default"] == Settings().outstanding
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
    known = {one.name for one in variables()}
    given = {key for key in environment(name) if key.startswith(PREFIX)}
    assert given <= known


def test_a_lease_is_as_long_in_the_template_as_without_one() -> None:
    assert parse_duration(template()["Parameters"]["Lease"]["Default"]) == Settings().lease_ms


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
    text, given = environment("OnExpiredFunction")["DUECOURSE_TARGETS"]["Fn::Sub"]
    condition, others, none = given["Others"]["Fn::If"]
    assert condition == "HasTargets"
    assert given["Reminders"]["Fn::If"] == [
        "QueuesReminders", {"Fn::Sub": "sqs:${ReminderMessages}"}, {"Fn::Sub": "lambda:${SendReminderFunction}"}
    ]  # fmt: skip
    text = text.replace("${Reminders}", "lambda:Send").replace("${Others}", others["Fn::Sub"] if members else none)
    text = text.replace("${Targets}", members)
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


def test_whoever_hears_watched_keys_and_whoever_makes_their_tasks_knows_them() -> None:
    watching = {name for name in FUNCTIONS if environment(name).get("DUECOURSE_WATCH") == {"Ref": "Watch"}}
    assert watching == {"OnExpiredFunction", "PollTickFunction"}
    (container,) = properties("BridgeTask")["ContainerDefinitions"]
    assert {"Name": "DUECOURSE_WATCH", "Value": {"Ref": "Watch"}} in container["Environment"]


def test_whoever_rings_and_whoever_is_rung_knows_how_long_before_functions_are_warmed() -> None:
    warming = {name for name in FUNCTIONS if environment(name).get("DUECOURSE_WARM") == {"Ref": "Warm"}}
    assert warming == {"OnExpiredFunction", "PollTickFunction"}
    (container,) = properties("BridgeTask")["ContainerDefinitions"]
    assert {"Name": "DUECOURSE_WARM", "Value": {"Ref": "Warm"}} in container["Environment"]
    assert template()["Parameters"]["Warm"]["Default"] == format_duration(parse({}).warm_ms)


@pytest.mark.parametrize(
    ("watch", "fits"),
    [("", True), ('[{"pattern": "send_message-{user}-{type}", "kind": "report"}]', True), ('{"pattern": "a"}', False)],
)
def test_watched_keys_are_given_as_a_list(watch: str, fits: bool) -> None:
    assert bool(re.fullmatch(template()["Parameters"]["Watch"]["AllowedPattern"], watch)) == fits


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_built_for_the_architecture_that_the_functions_run_on(name: str) -> None:
    layer = template()["Resources"][name]
    assert layer["Metadata"]["BuildArchitecture"] == {"Ref": "Architecture"}
    folder = TEMPLATE.parent / layer["Metadata"]["WorkingDirectory"]["Fn::Sub"].split("${")[0]
    allowed = template()["Parameters"]["Architecture"]["AllowedValues"]
    assert {path.parent.name for path in folder.glob("*/platform.txt")} == set(allowed)
    assert template()["Globals"]["Function"]["Architectures"] == [{"Ref": "Architecture"}]
    assert template()["Parameters"]["Architecture"]["Default"] == "arm64"


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_holds_bytecode_for_the_python_that_the_functions_run_on(name: str) -> None:
    runtime = template()["Globals"]["Function"]["Runtime"]
    assert properties(name)["CompatibleRuntimes"] == [runtime]
    assert f"--python-version {runtime.removeprefix('python')} " in (TEMPLATE.parent / "layers/layer.mk").read_text()
