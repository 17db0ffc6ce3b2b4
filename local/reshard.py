"""`reshard`: give a queue another number of shards, its tasks with it."""

from typing import Annotated

import typer

from duecourse.adapters.redis_reshard import Reshard
from duecourse.adapters.redis_scripts import connect
from duecourse.domain.shards import MAX_SHARDS
from duecourse.domain.times import parse_duration
from duecourse.errors import DuecourseError, StoreUnavailable
from duecourse.settings import Settings
from local import client, console, state
from local.problems import HarnessError
from local.threads import SCHEMES


def _duration(text: str) -> str:
    try:
        parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


def reshard(
    queue: Annotated[str, typer.Argument(help="The queue.")],
    count: Annotated[int, typer.Argument(help="How many shards it shall have.", min=1, max=MAX_SHARDS)],
    store: client.StoreUsed = None,
    namespace: Annotated[
        str | None, typer.Option(help="What its keys begin with.", show_default="DUECOURSE_NAMESPACE, duecourse")
    ] = None,
    wait: Annotated[
        str, typer.Option(help="How long to wait for leases to end, before anything is changed.", callback=_duration)
    ] = "PT60S",
    folder: client.StateUsed = state.DEFAULT,
) -> None:
    """Give a queue another number of shards, its tasks of all states with it.

    It pauses the queue, waits for its leases, closes it, moves its tasks and opens it again. Adds to it are refused
    meanwhile. It may be interrupted at any point: the queue stays closed until the same command is run again, or, where
    it still waited for leases, one with the old count.
    Afterwards DUECOURSE_SHARDS must say the new count, in every function and client.

    Examples:

        python -m local reshard default 8 --store redis-cluster://10.0.0.1:6379
    """
    with console.problems_told():
        total = _reshard(queue, count, client.ledger(store, folder, namespace=namespace), wait)
    console.out.print(
        f"{queue} has {count} shards now, {total} tasks in them" if total else f"{queue}: nothing to move"
    )


def _reshard(queue: str, count: int, settings: Settings, wait: str) -> int:
    if settings.store.startswith(SCHEMES):
        raise HarnessError(f"{settings.store} is one process's: only a queue on Redis can be resharded")
    try:
        with connect(settings.store) as redis:
            change = Reshard(redis, settings.namespace, queue, count, _tell)
            return change.run(parse_duration(wait) / 1000)
    except StoreUnavailable as error:
        raise HarnessError(f"{error}\nRun the same command again: it goes on where it was") from error
    except DuecourseError as error:
        raise HarnessError(str(error)) from error


def _tell(line: str) -> None:
    console.out.print(line)
