"""`python -m tests.bench`: every figure that docs/benchmarks.md claims, as a table.

Absolute figures depend on the machine and on what else it does: read the ratios. Each is taken in turn with its limit.
"""

import argparse

from rich.console import Console
from rich.table import Table

from tests.bench import first_call, first_line, lateness, ledger, schedules, scripts, ticks, travel, users, watched
from tests.bench.figures import Figure
from tests.bench.server import bench_server

SECTIONS = {
    "users": users.figures,
    "ledger": ledger.figures,
    "scripts": scripts.figures,
    "ticks": ticks.figures,
    "lateness": lateness.figures,
    "schedules": schedules.figures,
    "watched": watched.figures,
    "first_line": first_line.figures,
    "first_call": first_call.figures,
    "travel": travel.figures,
}
EPILOG = """\
examples:
  python -m tests.bench                     everything, about ten minutes
  python -m tests.bench --only ledger       the ledger alone
"""


def main() -> None:
    """Measure, and print a row a figure as each is there."""
    parser = argparse.ArgumentParser(
        "tests.bench", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=SECTIONS, help="one section instead of all")
    parser.add_argument("--pending", type=int, default=100_000, help="how many tasks wait (default 100,000)")
    options = parser.parse_args()
    console = Console(width=110)
    for name, section in SECTIONS.items():
        if options.only in (None, name):
            with console.status(f"measuring {name} …"), bench_server() as server:
                rows = list(section(server, options.pending))
            console.print(_table(name, server.version, rows))


def _table(name: str, version: str, rows: list[Figure]) -> Table:
    table = Table(
        "figure", "measured", "aim", "beside", title=f"{name}, Redis {version} on loopback", title_justify="left"
    )
    for row in rows:
        table.add_row(row.name, row.measured, row.aim, row.beside)
    return table


if __name__ == "__main__":
    main()
