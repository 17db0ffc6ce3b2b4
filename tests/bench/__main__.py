"""`python -m tests.bench`: what each part of duecourse does, beside the machine's own limits in the same run.

Absolute figures depend on the machine and on what else it does: read the ratios. Each side has its turn in each round.

examples:
  python -m tests.bench                     everything, a quarter of an hour
  python -m tests.bench --only ledger       the ledger alone
"""

from rich.console import Console

from tests.bench import page, stores, ticks, watched
from tests.bench.command import measured, parser
from tests.bench.sections import OWN
from tests.bench.stage import Section, at_one

MORE = {
    "page": Section("The operators' page", "", at_one(page.figures)),
    "stores": Section("Stores without a server", "", at_one(stores.figures)),
    "ticks": Section("A tick over idle shards", "", at_one(ticks.figures)),
    "watched": Section("Watched keys", "", at_one(watched.figures)),
}
"""Figures that other pages have, such as docs/reference/stores.md and docs/how-to/watched-keys.md (eight minutes)."""


def main() -> None:
    """Measure and print."""
    sections = {**OWN, **MORE}
    for _ in measured(Console(width=150), sections, parser("tests.bench", __doc__, sections).parse_args()):
        pass


if __name__ == "__main__":
    main()
