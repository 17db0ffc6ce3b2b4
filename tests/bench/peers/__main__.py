"""`python -m tests.bench.peers`: the client and the worker beside BullMQ, docket, arq and Celery, on one Redis.

Each adds and works with one process over one connection, at the best settings that its documents give. All get the
same payload of 120 bytes, and keep what is done as they do by default. Read the ratios.

examples:
  python -m tests.bench.peers                       everything, about twelve minutes
  python -m tests.bench.peers --only drain          the worker's throughput
  python -m tests.bench.peers --peers BullMQ        one of them
"""

from functools import partial

from rich.console import Console

from tests.bench.command import measured, parser
from tests.bench.sections import PEERS


def main() -> None:
    """Measure and print."""
    options = parser("tests.bench.peers", __doc__, PEERS)
    options.add_argument("--peers", nargs="*", metavar="NAME", help="these besides duecourse: BullMQ docket arq Celery")
    given = options.parse_args()
    sections = {
        name: section._replace(measure=partial(section.measure, only=given.peers)) for name, section in PEERS.items()
    }
    for _ in measured(Console(width=150), sections, given):
        pass


if __name__ == "__main__":
    main()
