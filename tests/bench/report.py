"""`python -m tests.bench.report`: measure, and write docs/benchmarks.md with its pictures. No figure is by hand.

A part that is not measured this time keeps the figures of its last run, with their date. With `--only` and no part,
the page gets its present texts.

examples:
  python -m tests.bench.report                       everything, twenty minutes at most
  python -m tests.bench.report --only client drain   these parts
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from docs.pictures.draw import FOLDER
from tests.bench import pictures
from tests.bench.command import Cells, Found, absolutes, measured, parser, ratios
from tests.bench.figures import ROUNDS
from tests.bench.peers.installed import versions
from tests.bench.sections import ALL, PEERS
from tests.support.pages import DOCS

PAGE = DOCS / "benchmarks.md"
INTRO = f"""\
# Benchmarks: what it does in a second

`make bench-report` measures everything on this page and writes it: no figure is by hand. Each part has its date, its
machine and its load. Rows that lose stay.

Absolute figures differ between machines of one kind by a factor of two to three, so read the ratios. Both sides of a
ratio take turns on one Redis, in {ROUNDS} rounds at least. A ratio is the median of the rounds' ratios, with the least
and the most in brackets.

Rates and lateness are measured on loopback, and again behind a proxy that holds every byte for 0.5 ms each way.
Between two zones of a cloud, a round trip takes 0.5 to 1 ms. The proxy delays bytes and not round trips, so pipelines
stay pipelines. Parts on schedules, scripts, functions and the test kit are on loopback alone.

The command waits until other programs take less than 8 % of the processors, two minutes at most in all. A row that was
measured while they took more is marked as busy.

The build of Python counts: one without `--enable-optimizations` works at about half the speed. Each part names its
build, and `duecourse doctor` notes a slow one.
"""
PICTURES: Mapping[str, tuple[str, str, Callable[[Found], str]]] = {
    "drain": (
        "bench-throughput.svg",
        "Bars: tasks a second of one worker process of each library, on loopback and 0.5 ms away",
        lambda found: pictures.throughput(
            found.stage.bars, f"Tasks that do nothing, each library at its best settings. {found.machine['date']}"
        ),
    ),
    "late": (
        "bench-lateness.svg",
        "Curves: share of tasks that have begun by a time after they were due, for each library",
        lambda found: pictures.lateness(
            found.stage.curves,
            f"Beside tasks that are due in an hour; dashed where Redis is 0.5 ms away. {found.machine['date']}",
        ),
    ),
}
"""A picture of a part: its file, what it shows, and how it is drawn."""


def block(name: str, found: Found) -> str:
    """The measured half of a part: ratios, picture, absolute figures, and the machine."""
    parts = [_table(ratios(found.figures)), _table(absolutes(found.figures))]
    if name in PICTURES:
        file, shown, _ = PICTURES[name]
        parts.insert(1, f"![{shown}](pictures/{file})")
    notes = {**found.machine, **({"libraries": versions()} if name in PEERS else {})}
    parts.append(_table(Cells(("measured", ""), list(notes.items()))))
    return "\n\n".join(part for part in parts if part)


def page(before: str, blocks: Mapping[str, str]) -> str:
    """The page with these new measurements; other parts keep those that it had before."""
    parts = [_flowing(INTRO)]
    for name, section in ALL.items():
        mark = f"<!-- measured: {name} -->"
        kept = re.search(rf"{mark}\n(.*?)(?=\n## |\Z)", before, re.DOTALL)
        missing = f'Not measured yet: `make bench-report ARGS="--only {name}"`.'
        shown = blocks.get(name, kept[1].strip() if kept else missing)
        parts.append(f"## {section.title}\n\n{_flowing(section.text)}\n\n{mark}\n{shown}")
    return "\n\n".join(parts) + "\n"


def _flowing(text: str) -> str:
    """A text with a line for each paragraph."""
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


def _table(cells: Cells) -> str:
    if not cells.rows:
        return ""
    rows: Sequence[Sequence[str]] = [cells.heads, ["---"] * len(cells.heads), *cells.rows]
    lines = (f"| {' | '.join(one.replace('|', '/') for one in row)} |".replace("|  |", "| |") for row in rows)
    return re.sub(r"(?<=\d) x(?= |\(|;|,)", " \N{MULTIPLICATION SIGN}", "\n".join(lines))


def write(name: str, found: Found, path: Path = PAGE, folder: Path = FOLDER) -> None:
    """Put what a part measured into the page at once: a run that ends early keeps what it has."""
    if name in PICTURES:
        file, _, draw = PICTURES[name]
        (folder / file).write_text(draw(found))
    path.write_text(page(path.read_text() if path.exists() else "", {name: block(name, found)}))


def main() -> None:
    """Measure and write."""
    options = parser("tests.bench.report", __doc__, ALL).parse_args()
    console = Console(width=150)
    PAGE.write_text(page(PAGE.read_text() if PAGE.exists() else "", {}))
    for name, found in measured(console, ALL, options):
        write(name, found)
        console.print(f"{name}: written to {PAGE.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
