"""Pictures of measurements as SVG: lateness as a distribution, and throughput, readable on light and dark pages."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from docs.pictures.svg import STYLE, WIDTH, text
from tests.bench.figures import LOOPBACK, quantile

LEFT, RIGHT, TOP, HIGH, FOOT = 60, 24, 64, 260, 64
LEAST_MS = 0.1
"""Begin of the axis of times, which is logarithmic."""
LEGEND = 130
BAR = 24
COLOURS = ("0969da", "bc4c00", "1a7f37", "8250df", "cf222e", "57606a")
LINES = "".join(f".l{n}{{stroke:#{colour}}}.b{n}{{fill:#{colour}}}" for n, colour in enumerate(COLOURS))
DARK = ["4493f8", "f0883e", "3fb950", "ab7df8", "f85149", "9198a1"]
DARK_LINES = "".join(f".l{n}{{stroke:#{colour}}}.b{n}{{fill:#{colour}}}" for n, colour in enumerate(DARK))
OWN_STYLE = (
    f"{STYLE}\n.curve{{fill:none;stroke-width:2}}.far{{stroke-dasharray:5 3}}{LINES}"
    f"\n@media(prefers-color-scheme:dark){{{DARK_LINES}}}"
)


def lateness(curves: Mapping[str, Sequence[float]], note: str) -> str:
    """The share of tasks that have begun by a time after they were due, a line for each name (`BullMQ, loopback`).

    Lines of another place than loopback are dashed.
    """
    most = max(max(late) for late in curves.values())
    decades = range(-1, math.ceil(math.log10(max(most, 10))) + 1)
    wide = WIDTH - LEFT - RIGHT - LEGEND

    def x(ms: float) -> float:
        return LEFT + wide * (math.log10(max(ms, LEAST_MS)) - decades[0]) / (decades[-1] - decades[0])

    def y(share: float) -> float:
        return TOP + HIGH * (1 - share)

    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<path class="line" d="M{LEFT} {y(share):.0f}H{LEFT + wide}"/>')
        parts.append(text(LEFT - 8, y(share) + 4, f"{share:.0%}", "soft", anchor="end"))
    for decade in decades:
        at = x(10.0**decade)
        parts.append(f'<path class="line" d="M{at:.0f} {TOP}V{TOP + HIGH}"/>')
        parts.append(text(at, TOP + HIGH + 18, f"{10.0**decade:g}", "soft", anchor="middle"))
    parts.append(text(LEFT + wide / 2, TOP + HIGH + 40, "milliseconds after the due time", "soft", anchor="middle"))
    sides = list(dict.fromkeys(name.partition(", ")[0] for name in curves))
    for number, side in enumerate(sides):
        above = TOP + 12 + 20 * number
        parts.append(f'<path class="curve l{number % len(COLOURS)}" d="M{LEFT + wide + 14} {above - 4}h24"/>')
        parts.append(text(LEFT + wide + 44, above, side))
    for name, late in curves.items():
        side, _, where = name.partition(", ")
        points = " ".join(f"{x(quantile(late, n / 100)):.1f},{y(n / 100):.1f}" for n in range(101))
        look = f"curve l{sides.index(side) % len(COLOURS)}{'' if where == LOOPBACK else ' far'}"
        parts.append(f'<polyline class="{look}" points="{points}"/>')
    return _page("Lateness of a task's start", note, TOP + HIGH + FOOT, parts)


def throughput(bars: Mapping[str, Mapping[str, float]], note: str) -> str:
    """Tasks a second of each library, in a group for each thing that was measured."""
    most = max(max(group.values()) for group in bars.values())
    left, at, parts = LEFT + 60, TOP, []
    for what, group in bars.items():
        parts.append(text(16, at + 14, what, "name text"))
        at += 24
        for number, (side, rate) in enumerate(group.items()):
            wide = max(1.0, (WIDTH - left - RIGHT - 70) * rate / most)
            parts.append(text(left - 8, at + 14, side, anchor="end"))
            look = f"b{number % len(COLOURS)}"
            parts.append(f'<rect class="{look}" x="{left}" y="{at + 2}" width="{wide:.0f}" height="{BAR - 8}" rx="3"/>')
            parts.append(text(left + wide + 6, at + 14, f"{rate:,.0f}/s", "soft"))
            at += BAR
        at += 8
    return _page("Throughput of one worker process", note, at + 16, parts)


def _page(title: str, note: str, high: float, parts: Sequence[str]) -> str:
    head = [
        f'<rect class="page" x=".5" y=".5" width="{WIDTH - 1}" height="{high - 1:.0f}" rx="6"/>',
        text(16, 26, title, "head text"),
        text(16, 46, note, "soft"),
    ]
    size = f'viewBox="0 0 {WIDTH} {high:.0f}" width="{WIDTH}" height="{high:.0f}"'
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>'
    return "\n".join(
        [begin, f"<title>{escape(title)}</title>", f"<style>{OWN_STYLE}</style>", *head, *parts, "</svg>\n"]
    )
