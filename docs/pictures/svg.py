"""Drawings of time as SVG: lanes side by side, wall clock above, UTC below, readable on light and dark pages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol, TypeAlias

WIDTH = 760
LEFT = 190
"""Distance of the first instant from the left (px); the names of the lanes are before it."""
RIGHT = 34
HEAD = 84
"""Height of title, note and upper axis (px)."""
FOOT = 40
LANE = 58
STYLE = """\
svg{font:12px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif}
.page{fill:#fff;stroke:#d0d7de}.text{fill:#1f2328}.soft{fill:#59636e}.head{font-size:15px;font-weight:600}.name{font-weight:600}
.line{stroke:#d0d7de}.band{fill:#fff1c2}.change{stroke:#bc4c00;stroke-dasharray:4 3}.warn{fill:#bc4c00}
.dot{fill:#0969da}.ring{fill:none;stroke:#59636e}.move{fill:none;stroke:#59636e;stroke-dasharray:3 3}
.no{stroke:#bc4c00;stroke-width:2}.bar{fill:#0969da}.cut{fill:#bc4c00}.in{fill:#fff}
@media(prefers-color-scheme:dark){.page{fill:#0d1117;stroke:#3d444d}.text{fill:#f0f6fc}.soft{fill:#9198a1}
.line{stroke:#3d444d}.band{fill:#38300f}.change{stroke:#f0883e}.warn{fill:#f0883e}.dot,.bar{fill:#4493f8}
.ring,.move{stroke:#9198a1}.no{stroke:#f0883e}.cut{fill:#f0883e}.in{fill:#0d1117}}"""

Place: TypeAlias = Callable[[int], float]
"""Distance of an instant (epoch ms) from the left (px)."""


class Mark(Protocol):
    """Something in a lane."""

    def drawn(self, x: Place, y: float) -> str:
        """Its SVG; the middle of the lane is at `y`."""


@dataclass(frozen=True, slots=True)
class Dot:
    """An occurrence that fires; its text is above, or `aside` of a line that goes through it."""

    at: int
    said: str = ""
    aside: bool = False

    def drawn(self, x: Place, y: float) -> str:
        """A filled circle with its text."""
        here = x(self.at)
        return f'<circle class="dot" cx="{here:.0f}" cy="{y:.0f}" r="6"/>' + _said(self, here, y)


@dataclass(frozen=True, slots=True)
class Nothing:
    """A nominal time without an occurrence."""

    at: int
    said: str = ""
    aside: bool = False
    row: float = 0.5

    def drawn(self, x: Place, y: float) -> str:
        """A cross with its text."""
        here, middle = x(self.at), _middle(y, self.row)
        return f'<path class="no" d="M{here - 5:.0f} {middle - 5:.0f}l10 10m0 -10l-10 10"/>' + _said(self, here, y)


@dataclass(frozen=True, slots=True)
class Moved:
    """A nominal time whose occurrence fires later."""

    nominal: int
    at: int

    def drawn(self, x: Place, y: float) -> str:
        """An open circle, and an arc to the time at which it fires."""
        here, there = x(self.nominal), x(self.at)
        arc = f"M{here:.0f} {y + 5:.0f}Q{(here + there) / 2:.0f} {y + 25:.0f} {there:.0f} {y + 6:.0f}"
        return f'<circle class="ring" cx="{here:.0f}" cy="{y:.0f}" r="5"/><path class="move" d="{arc}"/>'


@dataclass(frozen=True, slots=True)
class Bar:
    """An occurrence from its first run to its end; `cut` where it was cancelled, `row` where several are live."""

    since: int
    until: int
    said: str
    cut: bool = False
    row: int = 0

    def drawn(self, x: Place, y: float) -> str:
        """A bar with its text in it."""
        here, wide, top = x(self.since), x(self.until) - x(self.since), _middle(y, self.row) - 8
        shape = f'<rect class="{"cut" if self.cut else "bar"}" x="{here:.0f}" y="{top:.0f}" width="{wide - 2:.0f}"'
        return f'{shape} height="17" rx="4"/>' + text(here + 7, top + 13, self.said, "in")


@dataclass(frozen=True, slots=True)
class Waits:
    """A queued occurrence, from its nominal time to its first run or to its end."""

    since: int
    until: int
    row: int = 0

    def drawn(self, x: Place, y: float) -> str:
        """An open circle and a dashed line."""
        here, middle = x(self.since), _middle(y, self.row)
        line = f'<path class="move" d="M{here + 5:.0f} {middle:.0f}H{x(self.until) - 6:.0f}"/>'
        return f'<circle class="ring" cx="{here:.0f}" cy="{middle:.0f}" r="5"/>{line}'


def _middle(y: float, row: float) -> float:
    """The middle of one of a lane's two rows."""
    return y - 11 + 21 * row


def _said(mark: Dot | Nothing, here: float, y: float) -> str:
    style = "text" if isinstance(mark, Dot) else "warn"
    if mark.aside:
        return text(here + 11, y - 7, mark.said, style)
    return text(here, y - 12, mark.said, style, anchor="middle")


@dataclass(frozen=True, slots=True)
class Lane:
    """One choice: its name, its effect in a few words, and what happens."""

    name: str
    said: str
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class Span:
    """A time that all lanes share, such as an outage; with `until` = `since`, an instant."""

    since: int
    until: int
    said: str

    def drawn(self, x: Place, bottom: float) -> str:
        """A band, or a dashed line."""
        here, wide = x(self.since), x(self.until) - x(self.since)
        shape = f'<rect class="band" x="{here:.0f}" y="{HEAD}" width="{wide:.0f}" height="{bottom - HEAD:.0f}"/>'
        line = f'<path class="change" d="M{here:.0f} {HEAD - 4}V{bottom:.0f}"/>'
        middle = here + wide / 2
        return (shape if wide else line) + text(middle, bottom - 4, self.said, "warn", anchor="middle")


@dataclass(frozen=True, slots=True)
class Axis:
    """A row of texts above or below the lanes: its name, and the texts of instants."""

    name: str
    ticks: Sequence[tuple[int, str]]

    def drawn(self, x: Place, y: float) -> str:
        """A row of texts."""
        return text(16, y, self.name, "soft") + "".join(
            text(x(at), y, said, "soft", anchor="middle") for at, said in self.ticks
        )


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture of a policy: its lanes, from `since` to `until` (epoch ms)."""

    title: str
    note: str
    since: int
    until: int
    wall: Axis
    utc: Axis
    lanes: Sequence[Lane]
    spans: Sequence[Span] = ()

    def svg(self) -> str:
        """The whole file."""
        bottom = HEAD + LANE * len(self.lanes)
        parts = [
            f'<rect class="page" x=".5" y=".5" width="{WIDTH - 1}" height="{bottom + FOOT - 1}" rx="6"/>',
            text(16, 26, self.title, "head text"),
            text(16, 46, self.note, "soft"),
            *(one.drawn(self._x, bottom + 4) for one in self.spans),
            self.wall.drawn(self._x, HEAD - 12),
            *(self._lane(one, HEAD + LANE * (place + 0.5)) for place, one in enumerate(self.lanes)),
            self.utc.drawn(self._x, bottom + 26),
        ]
        size = f'viewBox="0 0 {WIDTH} {bottom + FOOT}" width="{WIDTH}" height="{bottom + FOOT}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>',
                f"<title>{escape(self.title)}</title>",
                f"<style>{STYLE}</style>",
                *parts,
                "</svg>\n",
            ]
        )

    def _x(self, at: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (at - self.since) / (self.until - self.since)

    def _lane(self, lane: Lane, y: float) -> str:
        names = text(16, y - 2, lane.name, "name text") + text(16, y + 14, lane.said, "soft")
        line = f'<path class="line" d="M{LEFT} {y:.0f}H{WIDTH - RIGHT + 14}"/>'
        return names + line + "".join(one.drawn(self._x, y) for one in lane.marks)


def text(x: float, y: float, said: str, style: str = "text", *, anchor: str = "start") -> str:
    """A text at a place; nothing for an empty one."""
    if not said:
        return ""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{style}" x="{x:.0f}" y="{y:.0f}"{where}>{escape(said, quote=False)}</text>'
