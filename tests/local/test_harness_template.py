"""How the harness reads a template: intrinsic functions, defaults, conditions, and the project's own template."""

import json
from pathlib import Path
from typing import Any

import pytest

from duecourse_local.errors import TemplateError
from duecourse_local.harness.aws.emulator import MAKERS
from duecourse_local.harness.intrinsics import Addresses
from duecourse_local.harness.options import PARAMETERS
from duecourse_local.harness.template import AsyncPolicy, Route, Template, mapped, source_of
from tests.support.project import ROOT
from tests.support.template import TEMPLATE

ADDRESSES = Addresses("http://api", "http://aws", "redis://store")
BASE = """
Parameters:
  Plain: {Type: String, Default: blue}
  Needed: {Type: String}
  Some: {Type: CommaDelimitedList, Default: "a, b"}
  Nothing: {Type: CommaDelimitedList, Default: ""}
Mappings:
  Sizes: {us-east-1: {small: 1}}
Conditions:
  Blue: !Equals [!Ref Plain, blue]
  Red: !Not [!Condition Blue]
  Both: !And [!Condition Blue, !Condition Red]
  Either: !Or [!Condition Blue, !Condition Red]
Resources:
  Table: {Type: AWS::DynamoDB::Table}
  Named: {Type: AWS::DynamoDB::Table, Properties: {TableName: !Sub "${AWS::StackName}-t"}}
  Queue: {Type: AWS::SQS::Queue}
  Topic: {Type: AWS::SNS::Topic}
  Other: {Type: AWS::IAM::Role}
  Gone: {Type: AWS::SQS::Queue, Condition: Red}
  Function:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: .
      Handler: app.handler
      Environment: {Variables: {IT: %s}}
"""


def read(tmp_path: Path, text: str, **parameters: str) -> Template:
    (tmp_path / "template.yaml").write_text(text)
    return Template(tmp_path / "template.yaml", ADDRESSES, {"Needed": "n", **parameters})


def value(tmp_path: Path, expression: str, **parameters: str) -> str:
    (function,) = read(tmp_path, BASE % expression, **parameters).functions
    return function.environment["IT"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("!Ref Plain", "blue"),
        ("!Ref Needed", "n"),
        ("!Ref AWS::Region", "us-east-1"),
        ("!Ref AWS::AccountId", "123456789012"),
        ("!Ref Function", "Function"),
        ("!Ref Table", "Table"),
        ("!Ref Named", "duecourse-t"),
        ("!Ref Queue", "http://aws/123456789012/Queue"),
        ("!Ref Topic", "arn:aws:sns:us-east-1:123456789012:Topic"),
        ("!GetAtt Table.Arn", "arn:aws:dynamodb:us-east-1:123456789012:table/Table"),
        ("!GetAtt Queue.Arn", "arn:aws:sqs:us-east-1:123456789012:Queue"),
        ("!GetAtt [Function, Arn]", "arn:aws:lambda:us-east-1:123456789012:function:Function"),
        ("!GetAtt Other.Arn", "Other.Arn"),
        ('!Sub "${Plain} ${!Plain} ${Table.Arn}"', "blue ${Plain} arn:aws:dynamodb:us-east-1:123456789012:table/Table"),
        ('!Sub ["${a}-${Plain}", {a: !Ref Needed}]', "n-blue"),
        ('!Sub "{{resolve:secretsmanager:${Plain}}}"', "redis://store"),
        ('"{{resolve:secretsmanager:x:SecretString:url}}"', "redis://store"),
        ('!Join ["-", [a, !Ref Plain]]', "a-blue"),
        ('!Join ["-", !Ref Some]', "a-b"),
        ('!Select [1, !Split [",", "x,y"]]', "y"),
        ('!FindInMap [Sizes, !Ref "AWS::Region", small]', "1"),
        ("!If [Blue, yes, no]", "true"),
        ("!If [Red, 1, !Ref Plain]", "blue"),
        ("!If [Both, 1, 2]", "2"),
        ("!If [Either, 1, 2]", "1"),
        ("true", "true"),
        ("16", "16"),
        ('!Sub "https://${ServerlessHttpApi}"', "https://ServerlessHttpApi"),
        ("!GetAtt ServerlessHttpApi.ApiEndpoint", "http://api"),
    ],
)
def test_intrinsic_functions_are_resolved(tmp_path: Path, expression: str, expected: str) -> None:
    assert value(tmp_path, expression) == expected


def test_a_given_parameter_wins_over_its_default(tmp_path: Path) -> None:
    assert value(tmp_path, "!If [Blue, 1, !Ref Plain]", Plain="red") == "red"


def test_no_value_leaves_a_property_out(tmp_path: Path) -> None:
    (function,) = read(tmp_path, BASE % "!Ref AWS::NoValue").functions
    assert "IT" not in function.environment


def test_a_resource_whose_condition_is_false_is_not_there(tmp_path: Path) -> None:
    template = read(tmp_path, BASE % "x")
    assert [r.name for r in template.resources("AWS::SQS::Queue")] == ["Queue"]


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("!Ref Nobody", "Nobody is referred to"),
        ("!If [Nobody, 1, 2]", "Nobody is used"),
        ("!FindInMap [Sizes, a, b]", "Sizes has no a.b"),
        ("!ImportValue x", "Fn::ImportValue is not understood"),
    ],
)
def test_what_cannot_be_resolved_is_named(tmp_path: Path, expression: str, problem: str) -> None:
    with pytest.raises(TemplateError, match=problem):
        value(tmp_path, expression)


def test_a_parameter_without_a_value_is_named(tmp_path: Path) -> None:
    (tmp_path / "template.yaml").write_text(BASE % "!Ref Needed")
    with pytest.raises(TemplateError, match="Needed has no default"):
        _ = Template(tmp_path / "template.yaml", ADDRESSES).functions


@pytest.mark.parametrize("text", ["{", None])
def test_a_template_that_cannot_be_read_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "template.yaml"
    if text:
        path.write_text(text)
    with pytest.raises(TemplateError, match=r"template\.yaml"):
        Template(path, ADDRESSES)


def test_a_code_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="CodeUri of Function"):
        _ = read(tmp_path, (BASE % "x").replace("CodeUri: .", "CodeUri: nowhere")).functions


@pytest.mark.parametrize("uri", ["{Bucket: code, Key: a.zip}", "s3://code/a.zip"])
def test_code_in_s3_is_named_with_its_function(tmp_path: Path, uri: str) -> None:
    with pytest.raises(TemplateError, match=r"CodeUri of Function is no folder of this machine.*a\.zip"):
        _ = read(tmp_path, (BASE % "x").replace("CodeUri: .", f"CodeUri: {uri}")).functions


def function(tmp_path: Path, shared: str, own: str) -> Any:
    text = f"""
Globals: {{Function: {shared}}}
Resources:
  It: {{Type: AWS::Serverless::Function, Properties: {own}}}
"""
    (found,) = read(tmp_path, text).functions
    return found


def test_defaults_are_lambdas(tmp_path: Path) -> None:
    found = function(tmp_path, "{}", "{Handler: a.b, CodeUri: .}")
    assert (found.memory_mb, found.timeout, found.concurrency) == (128, 3, 10)
    assert found.async_policy == AsyncPolicy(retries=2, max_age_s=21_600)


def test_a_functions_own_properties_are_merged_over_the_shared_ones(tmp_path: Path) -> None:
    shared = "{Timeout: 5, Environment: {Variables: {A: 1, B: 2}}, EventInvokeConfig: {MaximumRetryAttempts: 0}}"
    own = (
        "{Handler: a.b, CodeUri: ., Timeout: 9, ReservedConcurrentExecutions: 3, Environment: {Variables: {B: 3}},"
        ' EventInvokeConfig: {MaximumEventAgeInSeconds: 60, DestinationConfig: {OnFailure: {Destination: "arn:x"}}}}'
    )
    found = function(tmp_path, shared, own)
    assert (found.timeout, found.concurrency, found.environment) == (9, 3, {"A": "1", "B": "3"})
    assert found.async_policy == AsyncPolicy(retries=0, max_age_s=60, on_failure="arn:x")


def test_the_log_format_reaches_the_runtime_client(tmp_path: Path) -> None:
    found = function(tmp_path, "{LoggingConfig: {LogFormat: JSON}}", "{Handler: a.b, CodeUri: .}")
    assert found.environment == {"AWS_LAMBDA_LOG_FORMAT": "JSON", "AWS_LAMBDA_LOG_LEVEL": "INFO"}


@pytest.mark.parametrize(
    ("config", "level"),
    [
        ("{LogFormat: JSON, ApplicationLogLevel: DEBUG}", "DEBUG"),
        ("{LogFormat: json}", "INFO"),
        ("{LogFormat: Text}", None),
        ("{LogGroup: own}", None),
    ],
)
def test_the_level_of_logs_is_the_templates_else_lambdas_default(
    tmp_path: Path, config: str, level: str | None
) -> None:
    found = function(tmp_path, f"{{LoggingConfig: {config}}}", "{Handler: a.b, CodeUri: .}")
    assert found.environment.get("AWS_LAMBDA_LOG_LEVEL") == level


@pytest.fixture
def ours() -> Template:
    return Template(TEMPLATE, ADDRESSES, {**PARAMETERS, "Precision": "bridge"})


@pytest.mark.slow
def test_our_own_template_has_the_five_functions_with_their_layers(ours: Template) -> None:
    names = ["enqueue_http", "poll_tick", "on_expired", "send_reminder", "enqueue_message"]
    assert [f.code.name for f in ours.functions][:5] == names
    core, templates, seals = (ROOT / "layers" / name for name in ("core", "templates", "seals"))
    assert {f.code.name: f.layers for f in ours.functions[:5]} == {
        "enqueue_http": (core, templates, seals),
        "poll_tick": (core, seals),
        "on_expired": (core, seals),
        "send_reminder": (core, templates),
        "enqueue_message": (core, seals),
    }
    assert {f.environment["DUECOURSE_STORE"] for f in ours.functions} == {"redis://store"}


@pytest.mark.slow
def test_our_own_template_routes_tasks_and_ticks_every_minute(ours: Template) -> None:
    http, tick = ours.functions[:2]
    assert Route("POST", "/tasks") in http.routes
    assert [s.cadence.next_after(61.0) for s in tick.schedules] == [120.0]


@pytest.mark.parametrize(
    ("precision", "timeout", "linger"), [("tick", 55, "PT0S"), ("linger", 89, "PT63S"), ("bridge", 55, "PT0S")]
)
def test_our_own_templates_tick_lingers_where_that_is_asked_for(precision: str, timeout: float, linger: str) -> None:
    tick = Template(TEMPLATE, ADDRESSES, {"Precision": precision}).functions[1]
    assert (tick.timeout, tick.environment["DUECOURSE_TICK_LINGER"]) == (timeout, linger)


def test_our_own_template_has_every_resource_resolved_with_a_bridge_on_fargate() -> None:
    given = {"Precision": "bridge", "BridgeImage": "example/bridge:1", "SubnetIds": "subnet-1"}
    template = Template(TEMPLATE, ADDRESSES, given)
    (task,) = template.resources("AWS::ECS::TaskDefinition")
    (container,) = task.properties["ContainerDefinitions"]
    assert container["Image"] == "example/bridge:1"
    assert container["Secrets"][0]["ValueFrom"].endswith(":secret:duecourse/redis-url")
    whole = {**given, "RedisUrlSecret": "arn:aws:secretsmanager:us-east-1:123456789012:secret:x-abcdef"}
    (task,) = Template(TEMPLATE, ADDRESSES, whole).resources("AWS::ECS::TaskDefinition")
    assert task.properties["ContainerDefinitions"][0]["Secrets"][0]["ValueFrom"] == whole["RedisUrlSecret"]
    assert not Template(TEMPLATE, ADDRESSES, {**given, "Precision": "linger"}).resources("AWS::ECS::TaskDefinition")


def test_our_own_template_declares_what_the_emulator_can_make(ours: Template) -> None:
    kinds = {r.kind.split("::")[1] for r in ours.resources(*MAKERS)}
    assert kinds == {"DynamoDB", "SQS", "SES", "SNS"}


@pytest.mark.slow
def test_our_own_template_puts_queues_before_functions_only_where_asked(ours: Template) -> None:
    asked = Template(TEMPLATE, ADDRESSES, {"ReminderQueue": "sqs"})
    always = {"on_undelivered": ["UndeliveredQueue"]}
    assert sources(ours) == {"enqueue_message": ["IntakeMessages"]} | always
    assert sources(asked) == {"send_reminder": ["ReminderMessages"]} | always
    given = [json.loads(f.environment["DUECOURSE_TARGETS"] or "{}") for f in asked.functions]
    # Beside it there may be functions that `new` wrote into a copy.
    assert {targets["reminder"] for targets in given if targets} == {"sqs:http://aws/123456789012/ReminderMessages"}


QUEUE = {"Queue": "arn:aws:sqs:us-east-1:1:q"}
WINDOW = {"MaximumBatchingWindowInSeconds": 1}


def sources(template: Template) -> dict[str, list[str]]:
    return {f.code.name: [source.queue for source in f.sources] for f in template.functions if f.sources}


def test_what_a_source_says_is_read_and_the_rest_has_lambdas_defaults() -> None:
    broker = "arn:aws:mq:us-east-1:123456789012:broker:b:b-1"
    access = [{"Type": "BASIC_AUTH", "URI": "arn:…"}, {"Type": "VIRTUAL_HOST", "URI": "orders"}]
    plain = source_of("A", {"Type": "MQ", "Properties": {"Broker": broker, "Queues": ["q"]}})
    full = mapped(
        "B", {"EventSourceArn": broker, "Queues": ["q"], "BatchSize": 5, "SourceAccessConfigurations": access}
    )
    assert plain is not None
    assert (plain.queue, plain.batch_size, plain.window_s, plain.virtual_host) == ("q", 100, 0.5, None)
    assert full is not None
    assert (full.batch_size, full.virtual_host, full.partial) == (5, "orders", False)
    assert source_of("C", {"Type": "HttpApi"}) is None


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"Queue": "arn:aws:kinesis:us-east-1:123456789012:stream/s"}, "feeds from sqs and mq"),
        ({"Queue": "work"}, "feeds from sqs and mq"),
        ({"Queue": "arn:aws:sqs:us-east-1:1:q", "FilterCriteria": {}}, "FilterCriteria of A are not understood"),
        ({}, "the Queue of A is missing"),
        ({**QUEUE, "BatchSize": "many"}, "the BatchSize of A must be a number from 1 to 10000"),
        ({**QUEUE, "BatchSize": 0}, "the BatchSize of A must be a number from 1"),
        ({**QUEUE, "BatchSize": 11}, "BatchSize of A is over 10: that needs a MaximumBatchingWindowInSeconds"),
        ({"Queue": "arn:aws:sqs:us-east-1:1:q.fifo", "BatchSize": 11, **WINDOW}, "and no FIFO queue"),
        ({**QUEUE, "MaximumBatchingWindowInSeconds": 301}, "the MaximumBatchingWindowInSeconds of A must be a number"),
        ({**QUEUE, "ScalingConfig": {"MaximumConcurrency": 1}}, "the MaximumConcurrency of A must be a number from 2"),
    ],
)
def test_a_source_that_cannot_be_fed_is_refused(properties: dict[str, object], problem: str) -> None:
    with pytest.raises(TemplateError, match=problem):
        source_of("A", {"Type": "SQS", "Properties": properties})


@pytest.mark.parametrize("queues", [None, [], ["a", "b"], "q"])
def test_a_broker_is_read_by_one_of_its_queues(queues: object) -> None:
    with pytest.raises(TemplateError, match="the Queues of A must be a list of one queue"):
        source_of("A", {"Type": "MQ", "Properties": {"Broker": "arn:aws:mq:us-east-1:1:broker:b", "Queues": queues}})


@pytest.mark.parametrize("enabled", [False, "false"])
def test_a_source_that_is_switched_off_is_none(enabled: object) -> None:
    assert source_of("A", {"Type": "SQS", "Properties": {**QUEUE, "Enabled": enabled}}) is None


@pytest.mark.parametrize("named", ["!Ref F", "!GetAtt F.Arn", '!Sub "${F.Arn}:live"', "reader"])
def test_a_mapping_may_name_its_function_or_give_its_arn(tmp_path: Path, named: str) -> None:
    (tmp_path / "template.yaml").write_text(f"""
Resources:
  F:
    Type: AWS::Serverless::Function
    Properties: {{FunctionName: reader, Handler: app.handler}}
  Other:
    Type: AWS::Serverless::Function
    Properties: {{Handler: app.handler}}
  M:
    Type: AWS::Lambda::EventSourceMapping
    Properties: {{FunctionName: {named}, EventSourceArn: "arn:aws:sqs:us-east-1:1:q"}}
""")
    functions = Template(tmp_path / "template.yaml", ADDRESSES).functions
    assert [[source.queue for source in f.sources] for f in functions] == [["q"], []]


DEFINED = """
Resources:
  Api:
    Type: AWS::Serverless::HttpApi
    Properties:
      DefinitionBody:
        paths:
          /a:
            get: &to
              x-amazon-apigateway-integration:
                uri: !Sub arn:aws:apigateway:${AWS::Region}:lambda:path/2015-03-31/functions/${Function.Arn}/invocations
            x-amazon-apigateway-any-method: *to
          /b: {post: {x-amazon-apigateway-integration: {type: http_proxy, uri: "https://example.com/"}}, put: {}}
  Function: {Type: AWS::Serverless::Function, Properties: {CodeUri: ., Handler: app.handler}}
  Other: {Type: AWS::Serverless::Function, Properties: {CodeUri: ., Handler: app.handler}}
"""


def test_routes_of_an_apis_definition_lead_to_their_function(tmp_path: Path) -> None:
    function, other = read(tmp_path, DEFINED).functions
    assert function.routes == (Route("GET", "/a"), Route("ANY", "/a"))
    assert other.routes == ()
