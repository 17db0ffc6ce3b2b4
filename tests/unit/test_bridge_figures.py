"""The bridge's figures, as CloudWatch takes them from a log."""

import json

from duecourse.bridge import Stats
from duecourse.bridge.figures import figures


def test_a_line_of_figures_is_of_the_time_since_the_last_one() -> None:
    before, now = Stats(10, 5, 1, 3.0, True, 4, 1), Stats(17, 9, 1, 2.25, True, 14, 3)
    line = figures(now, before, service="mine", at=1_790_000_000_000)
    assert "\n" not in line
    told = json.loads(line)
    assert (told["Rings"], told["Invocations"], told["Refused"], told["Lateness"]) == (7, 4, 0, 2.2)
    assert (told["Keys"], told["KeysLost"]) == (10, 2)
    assert told["service"] == "mine"


def test_a_line_of_figures_names_its_metrics_as_the_format_asks() -> None:
    idle = Stats(0, 0, 0, 0.0, None)
    told = json.loads(figures(idle, idle, service="mine", at=1_790_000_000_000))
    assert told["_aws"]["Timestamp"] == 1_790_000_000_000
    [directive] = told["_aws"]["CloudWatchMetrics"]
    assert (directive["Namespace"], directive["Dimensions"]) == ("duecourse", [["service"]])
    assert {metric["Name"] for metric in directive["Metrics"]} == told.keys() - {"_aws", "service"}
