"""Celery, with Redis as its broker: adds one by one, for it has no add of many at once, and a worker."""

import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from celery import Celery
from celery.signals import worker_ready

from tests.bench.peers import turns
from tests.bench.peers.turns import DELAY_S, PAYLOAD, held_s, instants, note_late, serve

LEASE = "--lease-of-30-s"
"""Have the lease that ours and BullMQ's have by default: by its own default, an hour. A task that waits longer than
its lease is delivered again and again, so it is not for tasks that are due in an hour."""
LEASED = {"visibility_timeout": 30, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}


def celery(url: str, options: dict[str, int]) -> tuple[Celery, dict[str, Any]]:
    """The application and its tasks; one whose worker was killed runs again after its lease."""
    app = Celery("bench", broker=url)
    app.conf.update(
        broker_transport_options=options,
        broker_connection_retry_on_startup=True,
        task_acks_late=True,
        task_ignore_result=True,
        task_reject_on_worker_lost=True,
        worker_hijack_root_logger=False,
    )
    given: dict[str, Any] = {"report": _nothing, "nothing": _nothing, "late": note_late, "held": _held}
    return app, {name: app.task(work, name=name) for name, work in given.items()}


def _nothing(_payload: object) -> None:
    """Do nothing."""


def _held(_payload: object) -> None:
    time.sleep(held_s())


def add(url: str) -> None:
    """Serve adds."""
    _, tasks = celery(url, {})

    def one(count: int) -> None:
        for _ in range(count):
            tasks["report"].apply_async((PAYLOAD,), countdown=DELAY_S)

    def due(count: int, kind: str, first_at: float, every_ms: float) -> None:
        for at in instants(count, first_at, every_ms):
            eta = datetime.fromtimestamp(at / 1_000, UTC) if first_at else None
            tasks[kind].apply_async((turns.payload(at),), eta=eta)

    serve(one=one, due=due)


def work(url: str, settings: Sequence[str]) -> None:
    """Work with these options of `celery worker`, or with LEASE."""
    given = [one for one in settings if one != LEASE]
    app, _ = celery(url, LEASED if LEASE in settings else {})
    worker_ready.connect(lambda **_: os.write(1, b"ready\n"), weak=False)
    app.worker_main(["worker", "--loglevel=ERROR", "--without-gossip", "--without-mingle", *given])


if __name__ == "__main__":
    role, where, *more = sys.argv[1:]
    add(where) if role == "add" else work(where, more)
