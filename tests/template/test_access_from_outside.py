"""Whom the deployed stack lets in, and how far: what CloudFormation makes of the template in a row of deployments."""

import json
import re
from fnmatch import fnmatchcase
from typing import Any

import pytest

from tests.support.pages import DOCS
from tests.support.template import FUNCTIONS, properties, template
from tests.support.variants import CHOICES, KEY, created, resolver, variants

DEPLOYED = [created(template(), given) for given in variants()]
WITH_KEY = created(template(), {name: value for choice in CHOICES for name, value in choice.items()})
FUNCTION, QUEUE, TOPIC, LOG = "AWS::Serverless::Function", "AWS::SQS::Queue", "AWS::SNS::Topic", "AWS::Logs::LogGroup"
LOGGED = {
    "requestId": "$context.requestId",
    "time": "$context.requestTime",
    "sourceIp": "$context.identity.sourceIp",
    "caller": "$context.identity.userArn",
    "subject": "$context.authorizer.claims.sub",
    "routeKey": "$context.routeKey",
    "status": "$context.status",
    "error": "$context.error.responseType",
    "latency": "$context.responseLatency",
    "responseLength": "$context.responseLength",
}
"""Fields of the log of accesses: none of them is chosen by the caller but for the route."""
QUOTA, LEFT = 1_000, 100
"""Concurrent functions of an account, and those of them that Lambda keeps for functions without a reservation."""
ATTACHED = 10
"""Managed policies that a role may have, unless the account asked for more."""
NO_TLS = {"Bool": {"aws:SecureTransport": "false"}}


def of_type(resources: dict[str, Any], kind: str) -> dict[str, Any]:
    return {name: one["Properties"] for name, one in resources.items() if one["Type"] == kind}


def denied_without_tls(resources: dict[str, Any], kind: str, place: str) -> set[str]:
    """What no request without TLS reaches."""
    return {
        name
        for policy in of_type(resources, kind).values()
        for statement in policy["PolicyDocument"]["Statement"]
        if (statement["Effect"], statement["Principal"], statement.get("Condition")) == ("Deny", "*", NO_TLS)
        and statement["Action"] in {"sqs:*", "sns:Publish"}
        for name in policy[place]
        if statement["Resource"] in {"*", name}
    }


def test_no_request_without_tls_reaches_a_queue_or_a_topic() -> None:
    for resources in DEPLOYED:
        queues, topics = of_type(resources, QUEUE).keys(), of_type(resources, TOPIC).keys()
        assert denied_without_tls(resources, "AWS::SQS::QueuePolicy", "Queues") == queues
        assert denied_without_tls(resources, "AWS::SNS::TopicPolicy", "Topics") == topics
    assert len(of_type(WITH_KEY, QUEUE)) == 6


def test_cloudwatch_may_publish_alarms_of_this_account_alone() -> None:
    [policy] = of_type(DEPLOYED[-2], "AWS::SNS::TopicPolicy").values()
    [allowed] = [one for one in policy["PolicyDocument"]["Statement"] if one["Effect"] == "Allow"]
    assert allowed["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert (allowed["Action"], allowed["Resource"]) == ("sns:Publish", "AlarmTopic")
    account = resolver(template(), {}).resolve({"Ref": "AWS::AccountId"})
    assert allowed["Condition"]["StringEquals"] == {"aws:SourceAccount": account}
    assert re.fullmatch(
        rf"arn:aws:cloudwatch:[^:*]+:{account}:alarm:\*", allowed["Condition"]["ArnLike"]["aws:SourceArn"]
    )


@pytest.mark.parametrize("role", ["BridgeTaskRole", "BridgeExecutionRole"])
def test_a_role_is_taken_on_for_this_account_alone(role: str) -> None:
    [trusted] = properties(role)["AssumeRolePolicyDocument"]["Statement"]
    assert trusted["Principal"] == {"Service": "ecs-tasks.amazonaws.com"}
    assert trusted["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}


def test_the_log_of_accesses_has_nothing_that_a_caller_writes() -> None:
    logging = properties("Api")["AccessLogSettings"]
    assert logging["DestinationArn"] == {"Fn::GetAtt": ["ApiLogs", "Arn"]}
    assert "\n" not in logging["Format"]
    assert json.loads(logging["Format"]) == LOGGED


def test_requests_are_throttled_by_parameters_and_by_default() -> None:
    limits = properties("Api")["DefaultRouteSettings"]
    assert limits == {"ThrottlingBurstLimit": {"Ref": "ApiBurst"}, "ThrottlingRateLimit": {"Ref": "ApiRate"}}
    for name in ("ApiRate", "ApiBurst"):
        assert 1 == template()["Parameters"][name]["MinValue"] <= template()["Parameters"][name]["Default"] <= 5_000


def test_the_defaults_leave_the_account_the_functions_that_it_must_keep() -> None:
    functions = of_type(created(template(), {}), FUNCTION).values()
    reserved = sum(one.get("ReservedConcurrentExecutions", 0) for one in functions)
    assert 0 < reserved <= QUOTA - LEFT
    none = of_type(created(template(), {"Concurrency": "0"}), FUNCTION).values()
    assert not any("ReservedConcurrentExecutions" in one for one in none), "for accounts with a quota of ten"


def test_the_functions_of_the_api_have_a_bound_where_one_is_given() -> None:
    api = of_type(created(template(), {"ApiConcurrency": "20"}), FUNCTION)["EnqueueHttpFunction"]
    assert api["ReservedConcurrentExecutions"] == 20


def test_each_log_ends_and_is_as_old_as_the_parameter_says() -> None:
    for resources in DEPLOYED:
        days = {one["RetentionInDays"] for one in of_type(resources, LOG).values()}
        assert days in ({30}, {365})
    assert of_type(WITH_KEY, LOG).keys() == {"ApiLogs", "BridgeLogs", "Logs"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_aws_allows_a_function_beyond_its_work_is_denied(name: str) -> None:
    assert {"Ref": "BoundsPolicy"} in properties(name)["Policies"]
    logs, interfaces = properties("BoundsPolicy")["PolicyDocument"]["Statement"]
    assert (logs["Effect"], interfaces["Effect"]) == ("Deny", "Deny")
    assert set(logs["Action"]) == {"logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"}
    assert logs["NotResource"][0] == {"Fn::GetAtt": ["Logs", "Arn"]}
    assert template()["Globals"]["Function"]["LoggingConfig"]["LogGroup"] == {"Ref": "Logs"}
    assert (interfaces["Action"], interfaces["Resource"]) == ("ec2:*", "*")
    assert interfaces["Condition"] == {"Null": {"lambda:SourceFunctionArn": "false"}}, "Lambda itself sends no such key"


def test_a_key_of_ones_own_encrypts_all_that_is_kept_and_none_does_without_it() -> None:
    places = {
        QUEUE: lambda one: one.get("KmsMasterKeyId"),
        TOPIC: lambda one: one.get("KmsMasterKeyId"),
        LOG: lambda one: one.get("KmsKeyId"),
        "AWS::DynamoDB::Table": lambda one: one.get("SSESpecification", {}).get("KMSMasterKeyId"),
    }
    for given, resources in zip(variants(), DEPLOYED, strict=True):
        wanted = given.get("KmsKeyArn")
        for kind, key in places.items():
            assert {key(one) for one in of_type(resources, kind).values()} <= {wanted}, kind
        assert all(bool(one.get("SqsManagedSseEnabled")) != bool(wanted) for one in of_type(resources, QUEUE).values())
    shared = template()["Globals"]["Function"]["KmsKeyArn"]
    assert shared == {"Fn::If": ["HasKey", {"Ref": "KmsKeyArn"}, {"Ref": "AWS::NoValue"}]}


def test_the_key_is_used_through_the_services_that_keep_data_alone() -> None:
    [allowed] = of_type(WITH_KEY, "AWS::IAM::ManagedPolicy")["KeyPolicy"]["PolicyDocument"]["Statement"]
    assert allowed["Resource"] == KEY
    services = allowed["Condition"]["StringEquals"]["kms:ViaService"]
    assert {service.split(".")[0] for service in services} == {"dynamodb", "lambda", "sqs"}
    assert all(re.fullmatch(r"[a-z]+\.[a-z0-9-]+\.amazonaws\.com", service) for service in services)


def test_the_page_gives_a_key_policy_for_the_services_that_have_no_role_of_ours() -> None:
    page = (DOCS / "how-to" / "deploy.md").read_text()
    [shown] = re.findall(r"```json\n(\[.*?\])\n```", page, re.DOTALL)
    statements = {one["Principal"]["Service"]: one for one in json.loads(shown)}
    assert statements.keys() == {"cloudwatch.amazonaws.com", "logs.eu-central-1.amazonaws.com"}
    account = {"StringEquals": {"aws:SourceAccount": "123456789012"}}
    assert statements["cloudwatch.amazonaws.com"]["Condition"] == account
    logs = statements["logs.eu-central-1.amazonaws.com"]["Condition"]
    assert logs == {
        "ArnLike": {"kms:EncryptionContext:aws:logs:arn": "arn:aws:logs:eu-central-1:123456789012:log-group:*"}
    }


def test_the_key_of_sealed_credentials_is_handed_on_by_no_grant() -> None:
    own, grants = properties("CredentialsKey")["KeyPolicy"]["Statement"]
    assert own["Principal"] == {"AWS": {"Fn::Sub": "arn:${AWS::Partition}:iam::${AWS::AccountId}:root"}}
    assert (grants["Effect"], grants["Principal"], grants["Action"]) == ("Deny", "*", "kms:CreateGrant")
    elsewhere = {"kms:GrantIsForAWSResource": "false", "aws:PrincipalIsAWSService": "false"}
    assert grants["Condition"] == {"BoolIfExists": elsewhere}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_role_has_no_more_policies_than_aws_attaches(name: str) -> None:
    of_sam = ["AWSLambdaBasicExecutionRole", "AWSLambdaVPCAccessExecutionRole"]
    attached = [policy for policy in properties(name)["Policies"] if "Statement" not in json.dumps(policy)]
    assert len([*of_sam, *attached]) <= ATTACHED


def pulled(image: str) -> list[str]:
    """Repositories of which the bridge's starter may pull, as patterns."""
    values = resolver(template(), {"BridgeImage": image})
    [statement] = [
        one
        for policy in properties("BridgeExecutionRole")["Policies"]
        for one in policy["PolicyDocument"]["Statement"]
        if one.get("Sid") == "PullImage"
    ]
    return [str(arn).partition(":repository/")[2] for arn in values.resolve(statement["Resource"])]


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("1.dkr.ecr.eu-central-1.amazonaws.com/duecourse-bridge:1", "duecourse-bridge"),
        ("1.dkr.ecr.cn-north-1.amazonaws.com.cn/duecourse-bridge:1", "duecourse-bridge"),
        ("1.dkr.ecr.eu-central-1.amazonaws.com/duecourse-bridge@sha256:aa", "duecourse-bridge"),
        ("1.dkr.ecr.eu-central-1.amazonaws.com/duecourse-bridge", "duecourse-bridge"),
        ("1.dkr.ecr.eu-central-1.amazonaws.com/team/bridge:v1.2@sha256:aa", "team/bridge"),
    ],
)
def test_the_bridges_image_may_be_pulled_and_no_other_repository(image: str, repository: str) -> None:
    patterns = pulled(image)
    assert any(fnmatchcase(repository, pattern) for pattern in patterns)
    others = ("billing", "duecourse", "duecourse-bridge2", "teams/bridge", "x/duecourse-bridge")
    assert [other for other in others if any(fnmatchcase(other, pattern) for pattern in patterns)] == []


@pytest.mark.parametrize("image", ["", "bridge", "docker.io/library/bridge:1", "ghcr.io/team/bridge"])
def test_an_image_from_elsewhere_breaks_no_deployment_and_opens_no_whole_registry(image: str) -> None:
    assert "*" not in {pattern.removesuffix("/*") for pattern in pulled(image)}
