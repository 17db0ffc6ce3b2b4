"""The page of the metrics, written from their descriptions by `make reference`."""

from duecourse.metrics import PRINTED, metrics

from ..stack.options import TEMPLATE

PAGE = TEMPLATE.parent / "docs" / "reference" / "metrics.md"
HEAD = """\
# Metrics

Written from `layers/core/duecourse/metrics.py` by `make reference`: change the descriptions there, not this page.

The functions and the bridge print metrics into their logs, in CloudWatch's embedded metric format.
All are in the namespace `duecourse`. Their one dimension, `service`, is the value of `POWERTOOLS_SERVICE_NAME`.
The template sets it to the stack's name.

| metric | unit | meaning | printed by |
| --- | --- | --- | --- |
"""


def page() -> str:
    """The page's text."""
    rows = (
        f"| `{one.name}` | {one.unit} | {one.meaning} | {'; '.join(PRINTED[line] for line in one.lines)} |\n"
        for one in metrics()
    )
    return HEAD + "".join(rows)
