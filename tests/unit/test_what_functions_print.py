"""The lines that functions print: logs on their own threads, and metrics."""

import json
import logging

import pytest

from duecourse.measures import measure
from local.threads.house import logged
from local.threads.voices import VOICES


def test_a_log_on_a_functions_thread_is_in_that_functions_log_as_on_lambda() -> None:
    heard, rest = list[bytes](), list[bytes]()
    with VOICES.taken(rest.append), logged(), VOICES.of(heard.append):
        logging.getLogger("duecourse.on_expired").warning("left out", extra={"keys": ["k"]})
    record = json.loads(b"".join(heard))
    assert (record["level"], record["message"], record["keys"], rest) == ("WARNING", "left out", ["k"], [])


def test_figures_are_one_line_in_the_embedded_metric_format(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "mine")
    measure({"Done": 3, "Lateness": 1.5})
    told = json.loads(capsys.readouterr().out)
    [directive] = told["_aws"]["CloudWatchMetrics"]
    assert (told["Done"], told["Lateness"], told["service"]) == (3, 1.5, "mine")
    assert (directive["Namespace"], directive["Dimensions"]) == ("duecourse", [["service"]])
    units = {metric["Name"]: metric["Unit"] for metric in directive["Metrics"]}
    assert units == {"Done": "Count", "Lateness": "Milliseconds"}
