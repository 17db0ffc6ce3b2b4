"""The bridge's figures in CloudWatch's embedded metric format: one line of a log becomes metrics.

Source: AWS, "Specification: Embedded metric format". The namespace and the dimension are the functions' own.
"""

import json

from duecourse.bridge.bridge import Stats

NAMESPACE = "duecourse"
UNITS = {
    "Rings": "Count",
    "Invocations": "Count",
    "Refused": "Count",
    "Lateness": "Milliseconds",
    "Keys": "Count",
    "KeysLost": "Count",
    "Warmed": "Count",
}


def figures(now: Stats, before: Stats, *, service: str, at: int) -> str:
    """Figures between two looks at a bridge, as one line without its end; `at` is epoch milliseconds."""
    metrics = [{"Name": name, "Unit": unit} for name, unit in UNITS.items()]
    directive = {"Namespace": NAMESPACE, "Dimensions": [["service"]], "Metrics": metrics}
    values = {
        "Rings": now.rings - before.rings,
        "Invocations": now.invocations - before.invocations,
        "Refused": now.refused - before.refused,
        "Lateness": round(now.latest_ms, 1),
        "Keys": now.keys - before.keys,
        "KeysLost": now.lost - before.lost,
        "Warmed": now.warmed - before.warmed,
    }
    return json.dumps({"_aws": {"Timestamp": at, "CloudWatchMetrics": [directive]}, "service": service, **values})
