"""Celery's adds, with Redis as its broker; it has no add of many at once."""

import sys

from celery import Celery

from tests.bench.peers.turns import DELAY_S, PAYLOAD, serve


def main() -> None:
    """Serve."""
    app = Celery("bench", broker=sys.argv[1])

    @app.task(name="report", ignore_result=True)
    def report(payload: object) -> None:
        """The task."""

    def one(count: int) -> None:
        for _ in range(count):
            report.apply_async((PAYLOAD,), countdown=DELAY_S)

    serve(one=one)


if __name__ == "__main__":
    main()
