"""Figures in CloudWatch's embedded metric format: one line of a log becomes metrics.

Source: AWS, "Specification: Embedded metric format".
"""

import json
from collections.abc import Mapping

NAMESPACE = "duecourse"
SERVICE = "POWERTOOLS_SERVICE_NAME"
"""The variable with the dimension of all metrics, as users of Powertools know it."""
IN_MS = frozenset({"Lateness", "OldestOverdue"})
"""The metrics that are durations; the others are counts."""


def embedded(figures: Mapping[str, float], *, service: str, at: int) -> str:
    """Figures by their metrics' names, as one line without its end; `at` is epoch milliseconds."""
    metrics = [{"Name": name, "Unit": "Milliseconds" if name in IN_MS else "Count"} for name in figures]
    directive = {"Namespace": NAMESPACE, "Dimensions": [["service"]], "Metrics": metrics}
    return json.dumps({"_aws": {"Timestamp": at, "CloudWatchMetrics": [directive]}, "service": service, **figures})
