"""The lateness of a storm over time as SVG, with the faults marked; readable on light and dark pages."""

from collections.abc import Sequence
from html import escape
from math import log10

WIDTH, HEIGHT = 900, 450
LEFT, RIGHT, TOP, FOOT = 64, 40, 180, 44
LEAST_MS, MOST_MS = 1, 100_000
STYLE = """\
svg{font:11px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif}
.page{fill:#fff}.text{fill:#1f2328}.soft{fill:#59636e}.line{stroke:#d0d7de}.band{fill:#bc4c00;opacity:.14}
.dot{fill:#0969da;opacity:.35}.half{fill:none;stroke:#0969da;stroke-width:1.5}.head{font-size:14px;font-weight:600}
@media(prefers-color-scheme:dark){.page{fill:#0d1117}.text{fill:#f0f6fc}.soft{fill:#9198a1}.line{stroke:#3d444d}
.band{fill:#f0883e;opacity:.2}.dot{fill:#4493f8}.half{stroke:#4493f8}}"""


def drawn(title: str, begun_at: int, late: Sequence[tuple[int, int]], faults: Sequence[tuple[str, int, int]]) -> str:
    """The picture: a dot for each task, where it began and how late; a band for each fault."""
    ends_at = max([at for at, _ in late] + [end for _, _, end in faults] + [begun_at + 1_000])

    def x(at: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (at - begun_at) / (ends_at - begun_at)

    def y(late_ms: int) -> float:
        share = log10(min(max(late_ms, LEAST_MS), MOST_MS) / LEAST_MS) / log10(MOST_MS / LEAST_MS)
        return HEIGHT - FOOT - (HEIGHT - FOOT - TOP) * share

    parts = [
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="text head" x="12" y="22">{escape(title)}</text>',
    ]
    for ms in (1, 10, 100, 1_000, 10_000, 100_000):
        words = f"{ms} ms" if ms < 1_000 else f"{ms // 1_000} s"
        parts.append(f'<path class="line" d="M{LEFT} {y(ms):.0f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="soft" x="{LEFT - 6}" y="{y(ms) + 4:.0f}" text-anchor="end">{words}</text>')
    for name, began, ended in faults:
        at, wide = x(began), max(1.5, x(ended) - x(began))
        parts.append(f'<rect class="band" x="{at:.1f}" y="{TOP}" width="{wide:.1f}" height="{HEIGHT - FOOT - TOP}"/>')
        parts.append(
            f'<text class="soft" transform="translate({at + 4:.1f} {TOP - 4}) rotate(-60)">{escape(name)}</text>'
        )
    parts += [f'<circle class="dot" cx="{x(at):.1f}" cy="{y(ms):.1f}" r="1.3"/>' for at, ms in thinned(late)]
    seconds = (ends_at - begun_at) // 1_000
    for second in range(0, seconds + 1, 10 if seconds < 200 else 30):
        at = x(begun_at + second * 1_000)
        parts.append(f'<text class="soft" x="{at:.0f}" y="{HEIGHT - FOOT + 16}" text-anchor="middle">{second} s</text>')
    parts.append(
        f'<text class="soft" x="12" y="{HEIGHT - 8}">how late each task began, by the time at which it began</text>'
    )
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}><style>{STYLE}</style>{"".join(parts)}</svg>\n'


def thinned(late: Sequence[tuple[int, int]], most: int = 1_600) -> Sequence[tuple[int, int]]:
    """The latest tasks and a sample of the others: a picture is to be small."""
    if len(late) <= most:
        return late
    by_lateness = sorted(late, key=lambda one: -one[1])
    rest = by_lateness[most // 2 :]
    return by_lateness[: most // 2] + rest[:: max(1, len(rest) // (most // 2))]
