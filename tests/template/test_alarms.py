"""What the template watches: alarms, the bridge's container, the dashboard."""

import json
import re

import pytest

from duecourse.base.metrics import DIMENSION, NAMESPACE, SERVICE, BridgeLine, LingerLine, RungLine, TickLine
from duecourse.settings import PREFIX, parse, variables
from duecourse_local.reference.metrics import PRINTED, metrics
from tests.support.template import environment, properties, template


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
    assert alarm["Namespace"] == NAMESPACE
    assert alarm["Dimensions"] == [{"Name": DIMENSION, "Value": environment("PollTickFunction")[SERVICE]}]
    assert metric in TickLine.__annotations__


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


def keeps_what_failed() -> set[str]:
    """The queues that something is sent to when it has failed for good, and that nothing reads."""
    whole = json.dumps(template())
    found = re.findall(r'"(?:deadLetterTargetArn|Destination)": {"Fn::GetAtt": \["(\w+)", "Arn"\]}', whole)
    return set(found) - set(re.findall(r'"EventSourceArn": {"Fn::GetAtt": \["(\w+)", "Arn"\]}', whole))


@pytest.mark.parametrize("queue", sorted(keeps_what_failed()))
def test_an_alarm_goes_when_something_lies_in_a_queue_of_what_failed(queue: str) -> None:
    dimensions = [{"Name": "QueueName", "Value": {"Fn::GetAtt": [queue, "QueueName"]}}]
    resources = template()["Resources"]
    [name] = [name for name, found in resources.items() if found.get("Properties", {}).get("Dimensions") == dimensions]
    alarm = properties(name)
    assert (alarm["Namespace"], alarm["MetricName"]) == ("AWS/SQS", "ApproximateNumberOfMessagesVisible")
    assert (alarm["Statistic"], alarm["Threshold"], alarm["ComparisonOperator"]) == (
        "Maximum",
        0,
        "GreaterThanThreshold",
    )
    assert alarm["AlarmActions"] == alarm["OKActions"] == properties("DeadAlarm")["AlarmActions"]
    assert resources[name].get("Condition") == resources[queue].get("Condition")


def test_every_queue_of_what_failed_is_known() -> None:
    assert keeps_what_failed() == {"UndeliveredDeadLetters", "ReminderDeadLetters", "IntakeDeadLetters"}


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
    known = {one.name for one in variables()}
    assert {name for name in named if name.startswith(PREFIX)} <= known
    assert {"Name": "DUECOURSE_LEASE", "Value": {"Ref": "Lease"}} in container["Environment"], "how long it waits"
    at_runtime, none, at_start = container["Secrets"]["Fn::If"]
    assert (at_runtime, none) == ("ReadsSecrets", {"Ref": "AWS::NoValue"})
    assert [secret["Name"] for secret in at_start] == ["DUECOURSE_STORE"]
    assert container["ReadonlyRootFilesystem"] is True
    assert properties("BridgeTask")["RuntimePlatform"]["CpuArchitecture"] == {"Fn::If": ["OnArm", "ARM64", "X86_64"]}
    assert {"Name": SERVICE, "Value": environment("PollTickFunction")[SERVICE]} in container["Environment"]


def test_the_bridge_keeps_as_many_invocations_under_way_as_may_run() -> None:
    (container,) = properties("BridgeTask")["ContainerDefinitions"]
    given = {variable["Name"]: variable["Value"] for variable in container["Environment"]}
    assert given["DUECOURSE_BRIDGE_IN_FLIGHT"] == {"Fn::If": ["Reserves", {"Ref": "Concurrency"}, 4]}
    most = template()["Parameters"]["Concurrency"]["MaxValue"]
    assert parse({"DUECOURSE_BRIDGE_IN_FLIGHT": str(most)}).bridge_in_flight == most


def test_a_new_bridge_rings_before_the_old_one_stops() -> None:
    deployment = properties("BridgeService")["DeploymentConfiguration"]
    assert (deployment["MinimumHealthyPercent"], deployment["MaximumPercent"]) == (100, 200)
    network = properties("BridgeService")["NetworkConfiguration"]["Fn::If"][1]["AwsvpcConfiguration"]
    assert network["AssignPublicIp"] == "DISABLED"


def test_an_alarm_goes_when_the_bridge_tells_nothing_of_itself() -> None:
    alarm = properties("BridgeAlarm")
    assert (alarm["Namespace"], alarm["Statistic"], alarm["TreatMissingData"]) == (
        NAMESPACE,
        "SampleCount",
        "breaching",
    )
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (1, "LessThanThreshold")
    tellers = [line for line in PRINTED if alarm["MetricName"] in line.__annotations__]
    assert tellers == [BridgeLine], "a tick would hide the bridge's silence"


def test_an_alarm_goes_where_keys_are_watched_and_one_was_lost() -> None:
    alarm = properties("KeysLostAlarm")
    assert (alarm["Namespace"], alarm["MetricName"]) == (NAMESPACE, "KeysLost")
    tellers = [line for line in PRINTED if alarm["MetricName"] in line.__annotations__]
    assert tellers == [LingerLine, BridgeLine]
    assert (alarm["Statistic"], alarm["Threshold"], alarm["ComparisonOperator"]) == ("Sum", 0, "GreaterThanThreshold")
    assert (alarm["Period"], alarm["EvaluationPeriods"], alarm["TreatMissingData"]) == (60, 1, "notBreaching")
    dead = properties("DeadAlarm")
    assert [alarm[name] for name in ("Dimensions", "AlarmActions", "OKActions")] == [
        dead[name] for name in ("Dimensions", "AlarmActions", "OKActions")
    ]
    assert template()["Resources"]["KeysLostAlarm"]["Condition"] == "WatchesKeys"
    assert template()["Conditions"]["WatchesKeys"] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "Watch"}, ""]}]}


def test_an_alarm_goes_when_a_function_returns_without_a_settle() -> None:
    alarm = properties("LapsedAlarm")
    assert (alarm["Namespace"], alarm["MetricName"]) == (NAMESPACE, "LapsedAtTarget")
    tellers = [line for line in PRINTED if alarm["MetricName"] in line.__annotations__]
    assert tellers == [TickLine, LingerLine, RungLine], "whoever takes a lease back counts it"
    assert (alarm["Statistic"], alarm["Threshold"], alarm["ComparisonOperator"]) == ("Sum", 0, "GreaterThanThreshold")
    assert alarm["TreatMissingData"] == "notBreaching"
    dead = properties("DeadAlarm")
    assert [alarm[name] for name in ("Dimensions", "AlarmActions", "OKActions")] == [
        dead[name] for name in ("Dimensions", "AlarmActions", "OKActions")
    ]


def test_every_alarm_of_ours_watches_a_metric_that_something_tells() -> None:
    alarms = [found["Properties"] for found in template()["Resources"].values() if found["Type"].endswith("::Alarm")]
    watched = {alarm["MetricName"] for alarm in alarms if alarm["Namespace"] == NAMESPACE}
    assert watched == {"OldestOverdue", "Dead", "LapsedAtTarget", "Invocations", "KeysLost"}
    assert watched <= {metric.name for metric in metrics()}


def test_the_dashboard_shows_metrics_that_something_tells() -> None:
    body = json.loads(re.sub(r"\$\{[^}]+\}", "x", properties("Dashboard")["DashboardBody"]["Fn::Sub"]))
    shown = [metric for widget in body["widgets"] for metric in widget["properties"]["metrics"]]
    assert {one[1] for one in shown} == {"OldestOverdue", "RingLateness", "Added", "Done", "Retried", "Dead"}
    assert {one[1] for one in shown} <= {metric.name for metric in metrics()}
    assert {(one[0], one[2]) for one in shown} == {(NAMESPACE, DIMENSION)}
