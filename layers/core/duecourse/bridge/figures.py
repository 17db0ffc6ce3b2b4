"""The bridge's figures: metrics of the namespace and the dimension that the functions' own have."""

from duecourse.bridge.bridge import Stats
from duecourse.domain.figures import embedded


def figures(now: Stats, before: Stats, *, service: str, at: int) -> str:
    """Figures between two looks at a bridge, as one line without its end; `at` is epoch milliseconds."""
    values = {
        "Rings": now.rings - before.rings,
        "Invocations": now.invocations - before.invocations,
        "Refused": now.refused - before.refused,
        "Lateness": round(now.latest_ms, 1),
        "Keys": now.keys - before.keys,
        "KeysLost": now.lost - before.lost,
        "Warmed": now.warmed - before.warmed,
    }
    return embedded(values, service=service, at=at)
