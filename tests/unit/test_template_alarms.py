"""What the template watches: alarms, the bridge's container, the dashboard."""

import json
import re

import pytest

from duecourse.bridge import Stats
from duecourse.bridge.figures import figures
from duecourse.domain.figures import NAMESPACE
from duecourse.settings import PREFIX, parse, variables
from tests.support.described import TEMPLATE, environment, properties, template

IDLE = Stats(0, 0, 0, 0.0, None)
TOLD = json.loads(figures(IDLE, IDLE, service="", at=0)).keys() - {"_aws", "service"}
"""The metrics of the bridge."""


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
    assert [secret["Name"] for secret in container["Secrets"]] == ["DUECOURSE_STORE"]
    assert container["ReadonlyRootFilesystem"] is True
    assert properties("BridgeTask")["RuntimePlatform"]["CpuArchitecture"] == {"Fn::If": ["OnArm", "ARM64", "X86_64"]}
    service = environment("PollTickFunction")["POWERTOOLS_SERVICE_NAME"]
    assert {"Name": "POWERTOOLS_SERVICE_NAME", "Value": service} in container["Environment"]


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
    assert alarm["MetricName"] in TOLD
    assert (alarm["Namespace"], alarm["Statistic"], alarm["TreatMissingData"]) == (
        NAMESPACE,
        "SampleCount",
        "breaching",
    )
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (1, "LessThanThreshold")
    told_by_tick = (TEMPLATE.parent / "functions/poll_tick/app.py").read_text()
    assert f'"{alarm["MetricName"]}"' not in told_by_tick, "a tick would hide the bridge's silence"


def test_an_alarm_goes_where_keys_are_watched_and_one_was_lost() -> None:
    alarm = properties("KeysLostAlarm")
    assert (alarm["Namespace"], alarm["MetricName"]) == (NAMESPACE, "KeysLost")
    assert alarm["MetricName"] in TOLD, "the bridge tells it"
    assert f'"{alarm["MetricName"]}"' in (TEMPLATE.parent / "functions/poll_tick/app.py").read_text(), "a tick too"
    assert (alarm["Statistic"], alarm["Threshold"], alarm["ComparisonOperator"]) == ("Sum", 0, "GreaterThanThreshold")
    assert (alarm["Period"], alarm["EvaluationPeriods"], alarm["TreatMissingData"]) == (60, 1, "notBreaching")
    dead = properties("DeadAlarm")
    assert [alarm[name] for name in ("Dimensions", "AlarmActions", "OKActions")] == [
        dead[name] for name in ("Dimensions", "AlarmActions", "OKActions")
    ]
    assert template()["Resources"]["KeysLostAlarm"]["Condition"] == "WatchesKeys"
    assert template()["Conditions"]["WatchesKeys"] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "Watch"}, ""]}]}


def test_a_metric_of_the_bridges_own_means_nothing_else_elsewhere() -> None:
    told = "".join(path.read_text() for path in (TEMPLATE.parent / "functions").glob("*/app.py"))
    alike = {name for name in TOLD if f'"{name}"' in told}
    assert alike == {"Rings", "Lateness", "Keys", "KeysLost"}, "what a lingering tick tells too"


def test_the_dashboard_shows_metrics_that_something_tells() -> None:
    body = json.loads(re.sub(r"\$\{[^}]+\}", "x", properties("Dashboard")["DashboardBody"]["Fn::Sub"]))
    shown = {metric[1] for widget in body["widgets"] for metric in widget["properties"]["metrics"]}
    assert shown == {"OldestOverdue", "Lateness", "Added", "Done", "Retried", "Dead"}
    told = "".join(path.read_text() for path in (TEMPLATE.parent / "functions").glob("*/app.py"))
    assert all(f'"{name}"' in told for name in shown)
    assert "Lateness" in TOLD
