"""Every metric: its line in a log, its row on the page, and that nothing undeclared is printed."""

import ast
import json
from itertools import combinations

import pytest

from duecourse.base import metrics
from duecourse.base.metrics import COUNT, MS, NAMESPACE, HeardLine, UndeliveredLine, embedded, measure
from duecourse_local.reference import metrics as page
from tests.support.pages import DOCS
from tests.support.source import sources

HEARD = HeardLine(Rings=3, RingLateness=1.5, Keys=0, KeysLost=0)


def test_a_line_is_in_the_embedded_metric_format() -> None:
    line = embedded(HEARD, service="mine", at=1_790_000_000_000)  # type: ignore[arg-type]
    assert "\n" not in line
    assert json.loads(line) == {
        "_aws": {
            "Timestamp": 1_790_000_000_000,
            "CloudWatchMetrics": [
                {
                    "Namespace": NAMESPACE,
                    "Dimensions": [["service"]],
                    "Metrics": [
                        {"Name": "Rings", "Unit": COUNT},
                        {"Name": "RingLateness", "Unit": MS},
                        {"Name": "Keys", "Unit": COUNT},
                        {"Name": "KeysLost", "Unit": COUNT},
                    ],
                }
            ],
        },
        "service": "mine",
        **HEARD,
    }


@pytest.mark.parametrize(("variable", "service"), [("mine", "mine"), ("", NAMESPACE)])
def test_a_line_is_printed_under_the_stacks_own_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str, service: str
) -> None:
    monkeypatch.setenv(metrics.SERVICE, variable)
    measure(UndeliveredLine(Undelivered=2))
    told = json.loads(capsys.readouterr().out)
    assert (told["service"], told["Undelivered"]) == (service, 2)


def test_a_metric_means_the_same_in_every_line() -> None:
    for one, other in combinations(page.PRINTED, 2):
        shared = one.__annotations__.keys() & other.__annotations__.keys()
        assert all(one.__annotations__[name] is other.__annotations__[name] for name in shared), (one, other)


@pytest.mark.slow
def test_every_line_is_printed_somewhere_and_every_printed_line_has_a_row() -> None:
    """Mypy sees to the metrics of each line: `measure` takes these types alone."""
    code = sources("layers/core/duecourse", "functions")
    calls = [node.func for one in code for node in ast.walk(one.tree) if isinstance(node, ast.Call)]
    made = {called.id for called in calls if isinstance(called, ast.Name) and called.id.endswith("Line")}
    assert {line.__name__ for line in page.PRINTED} == made & vars(metrics).keys()


def test_the_page_of_metrics_is_up_to_date() -> None:
    assert page.PAGE.read_text() == page.page(), "run: make reference"
    assert all(f"| `{one.name}` | {one.unit} |" in page.page() for one in page.metrics())


def test_the_page_of_prices_counts_the_metrics() -> None:
    assert f"10 to {len(list(page.metrics()))} [metrics]" in (DOCS / "explanation" / "who-rings.md").read_text()
