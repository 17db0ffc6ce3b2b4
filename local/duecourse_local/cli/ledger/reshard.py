"""`reshard`: give a queue another number of shards, its tasks with it."""

from typing import Annotated

import typer

from duecourse.adapters.redis.reshard import Reshard
from duecourse.domain.shards import MAX_SHARDS
from duecourse.domain.times import parse_duration
from duecourse.settings import Settings

from ...stack import state
from .. import client, console


def reshard(
    queue: Annotated[str, typer.Argument(help="Name of the queue.")],
    count: Annotated[int, typer.Argument(help="New number of shards.", min=1, max=MAX_SHARDS)],
    store: client.StoreUsed = None,
    namespace: client.NamespaceUsed = None,
    wait: Annotated[
        str, typer.Option(help="Time to wait for running tasks before the first change.", callback=client.duration)
    ] = "PT60S",
    folder: client.StateUsed = state.DEFAULT,
) -> None:
    """Change the number of shards of a queue, and move its tasks in all states.

    The command pauses the queue, waits for its leases, closes the queue, moves the tasks and opens the queue again.
    Adds to the queue are rejected meanwhile.

    After an interruption, run the same command again; until then the queue stays closed. While the command still waits
    for leases, the old count reopens the queue.

    Then set DUECOURSE_SHARDS to the new count in every function and client.

    Examples:

        duecourse reshard default 8 --store redis-cluster://10.0.0.1:6379
    """
    with console.problems_shown():
        total = _reshard(queue, count, client.ledger(store, folder, namespace=namespace), wait)
    console.out.print(
        f"{queue} has {count} shards now, {total} tasks in them" if total else f"{queue}: nothing to move"
    )


def _reshard(queue: str, count: int, settings: Settings, wait: str) -> int:
    with client.redis_of(settings, "has no shards to move: only a queue on Redis can be resharded") as redis:
        tell, deaths = console.out.print, bool(settings.dead_target)
        change = Reshard(redis, settings.namespace, queue, count, tell, wait=settings.wait, deaths=deaths)
        return change.run(parse_duration(wait) / 1000)
