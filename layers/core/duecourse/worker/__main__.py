"""`python -m duecourse.worker`: the worker without the command `duecourse`."""

import argparse
import sys

from duecourse.base.variables import duration
from duecourse.worker.options import GRACE_MS, Options
from duecourse.worker.parent import run

EPILOG = """\
examples:
  python -m duecourse.worker --import myapp.kinds
  python -m duecourse.worker --import myapp.kinds --processes 4 --queue reports --health-port 8080

Settings come from DUECOURSE_* variables. "worker ready" on standard output means that rings are heard.
"""


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and work; returns the exit code."""
    parser = argparse.ArgumentParser("duecourse.worker", description=__doc__, epilog=EPILOG)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--import", dest="imports", action="append", default=[], metavar="MODULE", help="a module with handlers")
    add("--queue", dest="queues", action="append", default=[], metavar="NAME", help="a queue to serve; default: all")
    add("--processes", type=int, default=1, help="number of processes; default 1")
    add(
        "--concurrency",
        type=int,
        help="tasks at a time in each process; default DUECOURSE_PARALLEL, or 100 with async handlers alone",
    )
    add("--store", default="", metavar="URL", help="URL of the store; default DUECOURSE_STORE")
    add("--health-port", type=int, metavar="PORT", help="port for /live and /ready; default: none")
    add(
        "--health-host",
        metavar="ADDRESS",
        help='address of the health port, "" for every one; default: every one in a container, else 127.0.0.1',
    )
    add(
        "--grace",
        dest="grace_ms",
        type=duration(),
        default=GRACE_MS,
        help="time for tasks after SIGTERM; default PT25S",
    )
    given = vars(parser.parse_args(arguments))
    return run(Options(**given | {name: tuple(given[name]) for name in ("imports", "queues")}))


if __name__ == "__main__":
    sys.exit(main())
