"""What the template grants, declares and hands to the functions."""

import json
import re
from typing import Any

import pytest

from duecourse.api.kind_payloads import MAX_TIMEOUT_MS
from duecourse.base.times import format_duration, parse_duration
from duecourse.errors import InvalidSettings
from duecourse.settings import PREFIX, Settings, parse, variables
from duecourse_local.harness.intrinsics import Addresses
from duecourse_local.harness.template import Template
from tests.support.template import (
    FUNCTIONS,
    TEMPLATE,
    actions,
    environment,
    properties,
    resource_of,
    statements,
    template,
)

LAYERS = ("CoreLayer", "TemplatesLayer", "SealsLayer")
USING_KEY = {
    ("kms:Decrypt", "KmsKeyArn"),
    ("kms:DescribeKey", "KmsKeyArn"),
    ("kms:Encrypt", "KmsKeyArn"),
    ("kms:GenerateDataKey", "KmsKeyArn"),
    ("kms:GenerateDataKeyWithoutPlaintext", "KmsKeyArn"),
    ("kms:ReEncryptFrom", "KmsKeyArn"),
    ("kms:ReEncryptTo", "KmsKeyArn"),
}
"""With KmsKeyArn, and through the services that keep data alone."""
READING_STORE = {
    ("secretsmanager:GetSecretValue", "RedisUrlSecret or its ARN"),
    ("kms:Decrypt", "SecretsKeyArn"),
}
"""With Secrets=runtime."""
SHARED = {*USING_KEY, *READING_STORE}
"""What each function may do."""
CALLING = {("secretsmanager:GetSecretValue", "${CredentialPrefix}*"), ("kms:Decrypt", "SecretsKeyArn")}
"""Of the functions that call out."""
SEALING = {("kms:GenerateDataKey", "CredentialsKey.Arn or SealKey"), ("kms:Decrypt", "CredentialsKey.Arn or SealKey")}
SIGNING = {("secretsmanager:GetSecretValue", "SigningSecret or its ARN"), ("kms:Decrypt", "SecretsKeyArn")}
"""With SigningSecret: of the functions that call webhooks."""
WORKING = {
    *SHARED,
    *SIGNING,
    *CALLING,
    *SEALING,  # to make data keys where keys are watched, which makes tasks
    ("secretsmanager:GetSecretValue", "AmqpUrlSecret or its ARN"),
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
    "EnqueueHttpFunction": {
        *SHARED,
        *CALLING,
        *SEALING,
        ("dynamodb:GetItem", "ResultsTable.Arn"),
        ("dynamodb:PutItem", "ResultsTable.Arn"),
    },
    "PollTickFunction": WORKING,
    "OnExpiredFunction": WORKING,
    "SendReminderFunction": {
        *SHARED,
        *CALLING,
        *SIGNING,
        ("dynamodb:PutItem", "ResultsTable.Arn"),
        ("ses:SendEmail", "identity/${Identity}"),
        ("sns:Publish", "all but sns:*:*:*"),
        *((action, "ReminderMessages.Arn") for action in READING),
    },
    "EnqueueMessageFunction": {*SHARED, *SEALING, *((action, "IntakeMessages.Arn") for action in READING)},
    "OnUndeliveredFunction": {*SHARED, *((action, "UndeliveredQueue.Arn") for action in READING)},
}
"""Every action that a function may take, and on what."""
EVERYTHING = {
    "ReadCredentials": "each credential is a secret of its own, under one prefix",
    "AskToPull": "asking for a token knows no resource",
    "SendSms": "a number has no ARN: whatever has one is left out",
    "OwnTheKey": "in the policy of a key, `*` is that key; the account's own policies say who may use it",
}
"""Permissions that are not about one thing, and why."""
READS_IF_ASKED = {"Fn::If": ["ReadsSecrets", {"Ref": "SecretsPolicy"}, {"Ref": "AWS::NoValue"}]}
SOURCES = {
    "ReminderSource": ("SendReminderFunction", "ReminderMessages", "ReminderDeadLetters", "QueuesReminders"),
    "UndeliveredSource": ("OnUndeliveredFunction", "UndeliveredQueue", "UndeliveredDeadLetters", ""),
    "IntakeSource": ("EnqueueMessageFunction", "IntakeMessages", "IntakeDeadLetters", "TakesMessages"),
}
"""Which function reads which queue, what that cannot deliver, and on what condition."""
ROUTES = {
    "POST /tasks", "POST /tasks/batch", "GET /tasks", "GET /tasks/{id}", "GET /tasks/{id}/why",
    "POST /tasks/{id}/replay", "GET /queues/{queue}/dead", "POST /queues/{queue}/dead/replay",
    "PATCH /tasks/{id}", "DELETE /tasks/{id}",
    "POST /queues/{queue}/purge", "POST /queues/{queue}/cancel",
    "POST /tasks/{id}/begin", "POST /tasks/{id}/settle", "POST /tasks/{id}/extend", "POST /tasks/{id}/save",
    "POST /reminders", "POST /reminders/preview",
    "GET /reminders/{id}", "PATCH /reminders/{id}", "DELETE /reminders/{id}",
    "PATCH /reminders/{id}/occurrences/{at}", "DELETE /reminders/{id}/occurrences/{at}",
    "POST /schedules", "POST /schedules/preview", "POST /schedules/purge", "GET /schedules",
    "GET /schedules/{id}", "PATCH /schedules/{id}", "DELETE /schedules/{id}",
    "POST /schedules/{id}/run", "POST /schedules/{id}/backfill",
    "GET /queues", "GET /queues/{queue}", "PATCH /queues/{queue}", "GET /queues/{queue}/history",
    "POST /queries", "GET /queries/{id}",
    "GET /health", "GET /openapi.json", "GET /docs",
}  # fmt: skip


DEFAULT_ROUTE = "X-AMAZON-APIGATEWAY-ANY-METHOD $default"
"""Route of every request that no other route takes: the function answers it with a problem document, or as HEAD."""


def timeouts_ms(name: str) -> list[int]:
    """A function's timeout, in each case where it depends on a condition."""
    timeout = properties(name)["Timeout"]
    return [seconds * 1000 for seconds in (timeout["Fn::If"][1:] if isinstance(timeout, dict) else [timeout])]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_may_do_what_its_work_takes_and_no_more(name: str) -> None:
    allowed = [s for s in statements(properties(name)["Policies"]) if s["Effect"] == "Allow"]
    granted = {(a, resource_of(s)) for s in allowed for a in actions(s)}
    assert granted == GRANTED[name]


@pytest.mark.parametrize("name", SOURCES)
def test_a_queue_is_read_message_by_message_and_keeps_what_fails(name: str) -> None:
    function, queue, dead, condition = SOURCES[name]
    assert properties(name) == {
        "EventSourceArn": {"Fn::GetAtt": [queue, "Arn"]},
        "FunctionName": {"Ref": function},
        "BatchSize": 10,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "ScalingConfig": {"MaximumConcurrency": {"Ref": "QueueConcurrency"}},
    }
    assert properties(queue)["VisibilityTimeout"] == 6 * properties(function)["Timeout"]
    redrive = properties(queue)["RedrivePolicy"]
    assert redrive == {"deadLetterTargetArn": {"Fn::GetAtt": [dead, "Arn"]}, "maxReceiveCount": 5}
    resources = template()["Resources"]
    assert {resources[each].get("Condition", "") for each in (name, queue, dead)} == {condition}
    of_sqs = {"Fn::If": ["HasKey", {"Ref": "AWS::NoValue"}, True]}
    assert all(properties(each)["SqsManagedSseEnabled"] == of_sqs for each in (queue, dead))
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


def test_no_permission_is_about_everything_but_where_there_is_no_name_for_less() -> None:
    for statement in statements(template()["Resources"]):
        about = json.dumps([statement.get(part) for part in ("Action", "Resource", "NotResource")])
        about = about.replace("repository/${Name}/*", "")  # the same name, as a folder of repositories
        assert statement["Effect"] == "Deny" or "*" not in about or statement.get("Sid") in EVERYTHING, statement


def test_a_function_that_calls_out_may_read_the_secrets_of_one_prefix() -> None:
    [reading, choice] = properties("CredentialsPolicy")["PolicyDocument"]["Statement"]
    place = "arn:${AWS::Partition}:secretsmanager:${AWS::Region}:${AWS::AccountId}:secret:${CredentialPrefix}*"
    assert (reading["Action"], reading["Resource"]) == ("secretsmanager:GetSecretValue", {"Fn::Sub": place})
    condition, decrypting, none = choice["Fn::If"]
    assert (condition, none) == ("HasSecretsKey", {"Ref": "AWS::NoValue"})
    assert (decrypting["Action"], decrypting["Resource"]) == ("kms:Decrypt", {"Ref": "SecretsKeyArn"})
    assert "kms:ViaService" in decrypting["Condition"]["StringEquals"]


@pytest.mark.parametrize(
    ("prefix", "fits"),
    [("duecourse/auth/", True), ("a/", True), ("duecourse/auth", False), ("/", False), ("*/", False)],
)
def test_a_prefix_of_credentials_ends_where_a_tenants_name_begins(prefix: str, fits: bool) -> None:
    assert bool(re.fullmatch(template()["Parameters"]["CredentialPrefix"]["AllowedPattern"], prefix)) == fits
    if fits:
        assert parse({"DUECOURSE_CREDENTIAL_PREFIX": prefix}).credential_prefix == prefix
    else:
        with pytest.raises(InvalidSettings, match="DUECOURSE_CREDENTIAL_PREFIX: must end with /"):
            parse({"DUECOURSE_CREDENTIAL_PREFIX": prefix})


SEALING_FUNCTIONS = ("EnqueueHttpFunction", "EnqueueMessageFunction", "OnExpiredFunction", "PollTickFunction")


def test_a_key_that_seals_is_made_unless_another_is_named_and_outlives_the_stack() -> None:
    key = template()["Resources"]["CredentialsKey"]
    assert (key["Condition"], key["DeletionPolicy"], key["UpdateReplacePolicy"]) == ("MakesSealKey", "Retain", "Retain")
    assert key["Properties"]["EnableKeyRotation"] is True
    assert template()["Parameters"]["SealKey"]["Default"] == "create"
    assert template()["Conditions"]["Seals"] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "SealKey"}, "none"]}]}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_key_that_seals_is_named_to_those_who_seal_or_open_alone(name: str) -> None:
    named = environment(name).get("DUECOURSE_SEAL_KEY")
    if name not in SEALING_FUNCTIONS:
        assert named is None
        return
    condition, key, none = named["Fn::If"]
    assert (condition, none) == ("Seals", "")
    assert key == {"Fn::If": ["MakesSealKey", {"Fn::GetAtt": ["CredentialsKey", "Arn"]}, {"Ref": "SealKey"}]}


@pytest.mark.parametrize("policy", ["SealPolicy", "WorkPolicy"])
def test_the_key_that_seals_may_be_used_for_this_namespace_alone(policy: str) -> None:
    found = [one for one in statements(properties(policy)) if any(a.startswith("kms:") for a in actions(one))]
    assert [one["Condition"] for one in found] == [
        {"StringEquals": {"kms:EncryptionContext:duecourse:namespace": {"Ref": "Namespace"}}}
    ]


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
def test_a_layer_is_there_for_those_who_write_reminders_or_seal_alone(name: str) -> None:
    writes = name in {"EnqueueHttpFunction", "SendReminderFunction"}
    wanted = ["TemplatesLayer"] * writes + ["SealsLayer"] * (name in SEALING_FUNCTIONS)
    assert properties(name).get("Layers", []) == [{"Ref": layer} for layer in wanted]
    assert template()["Globals"]["Function"]["Layers"] == [{"Ref": "CoreLayer"}]


def test_the_bridges_container_may_invoke_and_its_starter_read_one_secret_and_write_one_log() -> None:
    assert properties("BridgeTaskRole")["ManagedPolicyArns"] == [{"Ref": "BridgePolicy"}, READS_IF_ASKED]
    assert "Policies" not in properties("BridgeTaskRole")
    starting = {s["Sid"]: s for s in statements(properties("BridgeExecutionRole")["Policies"])}
    assert starting.keys() == {"ReadStoreUrl", "WriteLog", "PullImage", "AskToPull"}
    assert starting["ReadStoreUrl"]["Action"] == "secretsmanager:GetSecretValue"
    assert "${RedisUrlSecret}-??????" in json.dumps(starting["ReadStoreUrl"]["Resource"])
    assert starting["WriteLog"]["Resource"] == {"Fn::GetAtt": ["BridgeLogs", "Arn"]}
    assert starting["AskToPull"]["Action"] == "ecr:GetAuthorizationToken"
    assert all(action.startswith("ecr:") for action in starting["PullImage"]["Action"])


def operations() -> dict[str, dict[str, Any]]:
    """Every route of the API."""
    paths = properties("Api")["DefinitionBody"]["paths"]
    return {f"{method.upper()} {path}": one for path, methods in paths.items() for method, one in methods.items()}


def test_the_api_lets_nobody_in_without_a_signature_or_a_token() -> None:
    assert all(operation["security"] == [{"Caller": []}] for operation in operations().values())
    condition, token, signature = properties("Api")["DefinitionBody"]["components"]["securitySchemes"]["Caller"][
        "Fn::If"
    ]
    assert template()["Conditions"][condition] == {"Fn::Equals": [{"Ref": "Auth"}, "jwt"]}
    assert template()["Parameters"]["Auth"]["Default"] == "iam"
    assert signature["x-amazon-apigateway-authtype"] == "awsSigv4"
    assert token["x-amazon-apigateway-authorizer"] == {
        "type": "jwt",
        "identitySource": "$request.header.Authorization",
        "jwtConfiguration": {"issuer": {"Ref": "JwtIssuer"}, "audience": {"Ref": "JwtAudience"}},
    }


def test_every_route_of_the_api_leads_to_its_function() -> None:
    assert operations().keys() == ROUTES | {DEFAULT_ROUTE}
    assert operations()[DEFAULT_ROUTE]["isDefaultRoute"] is True
    for operation in operations().values():
        leads = operation["x-amazon-apigateway-integration"]
        assert (leads["type"], leads["httpMethod"], leads["payloadFormatVersion"]) == ("aws_proxy", "POST", "2.0")
        assert leads["uri"]["Fn::Sub"].endswith("/functions/${EnqueueHttpFunction.Arn}/invocations")
    assert "Events" not in properties("EnqueueHttpFunction")


def test_the_api_and_no_other_may_invoke_the_function() -> None:
    allowed = properties("ApiPermission")
    assert (allowed["Principal"], allowed["FunctionName"]) == (
        "apigateway.amazonaws.com",
        {"Ref": "EnqueueHttpFunction"},
    )
    assert allowed["SourceArn"]["Fn::Sub"].endswith(":${AWS::AccountId}:${Api}/*")


@pytest.mark.parametrize(
    "rule",
    ["", "claim:org_id", "claim:https://example.com/tenant", 'principals:{"arn:aws:iam::123456789012:role/a": "b"}'],
)
def test_a_rule_for_tenants_that_the_template_takes_is_a_setting_that_passes(rule: str) -> None:
    assert re.fullmatch(template()["Parameters"]["TenantFrom"]["AllowedPattern"], rule)
    assert bool(parse({"DUECOURSE_TENANT_FROM": rule}).tenant_from) == bool(rule)
    assert environment("EnqueueHttpFunction")["DUECOURSE_TENANT_FROM"] == {"Ref": "TenantFrom"}
    assert environment("EnqueueHttpFunction")["DUECOURSE_TENANT_MAX_QUEUES"] == {"Ref": "TenantMaxQueues"}
    assert environment("EnqueueHttpFunction")["DUECOURSE_TENANT_MAX_QUERIES"] == {"Ref": "TenantMaxQueries"}


@pytest.mark.parametrize(
    ("path", "fits"), [("", True), ("/jobs", True), ("/a/b.c", True), ("jobs", False), ("/", False)]
)
def test_a_base_path_that_the_template_takes_is_a_setting_that_passes(path: str, fits: bool) -> None:
    assert bool(re.fullmatch(template()["Parameters"]["BasePath"]["AllowedPattern"], path)) == fits
    if fits:
        assert parse({"DUECOURSE_BASE_PATH": path}).base_path == path
    else:
        with pytest.raises(InvalidSettings):
            parse({"DUECOURSE_BASE_PATH": path})
    assert environment("EnqueueHttpFunction")["DUECOURSE_BASE_PATH"] == {"Ref": "BasePath"}


def test_a_load_balancer_is_closed_by_default_and_never_open_beside_a_rule() -> None:
    assert template()["Parameters"]["LoadBalancer"]["Default"] == parse({}).load_balancer == "closed"
    assert environment("EnqueueHttpFunction")["DUECOURSE_LOAD_BALANCER"] == {"Ref": "LoadBalancer"}
    rule = template()["Rules"]["BalancerNamesNoCaller"]
    assert rule["RuleCondition"] == {"Fn::Equals": [{"Ref": "LoadBalancer"}, "open"]}
    assert rule["Assertions"][0]["Assert"] == {"Fn::Equals": [{"Ref": "TenantFrom"}, ""]}


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


def test_the_url_of_the_store_comes_from_a_secret_at_deployment_unless_it_is_read_at_runtime() -> None:
    resolved = {"Fn::Sub": "{{resolve:secretsmanager:${RedisUrlSecret}}}"}
    for name in FUNCTIONS:
        given = environment(name)
        assert given["DUECOURSE_STORE"] == {"Fn::If": ["ReadsSecrets", "", resolved]}
        assert given["DUECOURSE_STORE_SECRET"] == {"Fn::If": ["ReadsSecrets", {"Ref": "RedisUrlSecret"}, ""]}
        assert given["DUECOURSE_AMQP"]["Fn::If"][:2] == ["ReadsSecrets", ""]
        assert given["DUECOURSE_AMQP_SECRET"] == {"Fn::If": ["ReadsSecrets", {"Ref": "AmqpUrlSecret"}, ""]}
    asked = template()["Parameters"]["Secrets"]
    assert (asked["Default"], asked["AllowedValues"]) == ("deploy", ["deploy", "runtime"])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_reads_the_stores_secret_where_it_is_asked_to(name: str) -> None:
    assert READS_IF_ASKED in properties(name)["Policies"]


@pytest.mark.parametrize("sort", ["deploy", "runtime"])
def test_no_function_is_given_more_than_the_name_of_a_secret_at_runtime(sort: str) -> None:
    given = {"Secrets": sort, "RedisUrlSecret": "a/name", "AmqpUrlSecret": "b/name"}
    secret = "redis://user:password@host"
    for function in Template(TEMPLATE, Addresses("", "", secret), given).functions:
        text = json.dumps(dict(function.environment))
        assert ("password" in text) == (sort == "deploy")
        assert ("a/name" in text) == ("b/name" in text) == (sort == "runtime")


def test_a_key_of_ones_own_is_used_for_secrets_alone() -> None:
    [decrypting] = [s for s in statements(properties("SecretsPolicy")) if s["Sid"] == "DecryptSecrets"]
    assert decrypting["Resource"] == {"Ref": "SecretsKeyArn"}
    service = {"Fn::Sub": "secretsmanager.${AWS::Region}.${AWS::URLSuffix}"}
    assert decrypting["Condition"] == {"StringEquals": {"kms:ViaService": service}}


@pytest.mark.parametrize("sort", ["deploy", "runtime"])
def test_the_bridges_container_has_the_url_or_the_name_of_its_secret(sort: str) -> None:
    given = {"Precision": "bridge", "BridgeImage": "i", "SubnetIds": "s", "SecurityGroupIds": "g", "Secrets": sort}
    [task] = Template(TEMPLATE, Addresses("", "", ""), given).resources("AWS::ECS::TaskDefinition")
    [container] = task.properties["ContainerDefinitions"]
    named = {one["Name"]: one["Value"] for one in container["Environment"]}
    assert named["DUECOURSE_STORE_SECRET"] == ("duecourse/redis-url" if sort == "runtime" else "")
    assert [one["Name"] for one in container.get("Secrets", [])] == (["DUECOURSE_STORE"] if sort == "deploy" else [])


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
    between, (reminder, more, end) = environment("OnExpiredFunction")["DUECOURSE_TARGETS"]["Fn::Join"]
    text, given = reminder["Fn::Sub"]
    condition, others, none = more["Fn::If"]
    assert condition == "HasTargets"
    assert given["Reminders"]["Fn::If"] == [
        "QueuesReminders", {"Fn::Sub": "sqs:${ReminderMessages}"}, {"Fn::Sub": "lambda:${SendReminderFunction}"}
    ]  # fmt: skip
    own = others["Fn::Sub"].replace("${Targets}", members) if members else none
    text = between.join((text.replace("${Reminders}", "lambda:Send"), own, end))
    found = parse({"DUECOURSE_TARGETS": text, "DUECOURSE_AMQP": "amqps://broker/"})
    assert found.targets == {"reminder": "lambda:Send", **kinds}
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
