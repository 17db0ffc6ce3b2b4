"""`reshard`: give a queue another number of shards, its tasks with it."""

import os
from typing import Annotated, Any

import typer

from duecourse.adapters.redis_reshard import Reshard
from duecourse.adapters.redis_scripts import connect
from duecourse.domain.shards import MAX_SHARDS
from duecourse.domain.times import parse_duration
from duecourse.errors import DuecourseError, StoreUnavailable
from duecourse.settings import parse
from local import client, console, state
from local.problems import HarnessError


def reshard(
    queue: Annotated[str, typer.Argument(help="The queue.")],
    count: Annotated[int, typer.Argument(help="How many shards it shall have.", min=1, max=MAX_SHARDS)],
    store: Annotated[
        str | None, typer.Option(help="The store's URL.", show_default="that of the stack that is up, DUECOURSE_STORE")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option(help="What its keys begin with.", show_default="DUECOURSE_NAMESPACE, duecourse")
    ] = None,
    wait: Annotated[
        str, typer.Option(help="How long to wait for leases to end, before anything is changed.")
    ] = "PT60S",
    folder: client.StateUsed = state.DEFAULT,
) -> None:
    """Give a queue another number of shards, its tasks of all states with it.

    It pauses the queue, waits for its leases, closes it, moves its tasks and opens it again. Adds to it are refused
    meanwhile. It may be interrupted at any point: the queue stays closed until the same command is run again.
    Afterwards DUECOURSE_SHARDS must say the new count, in every function and client.

    Examples:

        python -m local reshard default 8 --store redis-cluster://10.0.0.1:6379
    """
    with console.problems_told():
        total = _reshard(queue, count, store or (state.running(folder) or {}).get("store"), namespace, wait)
    console.out.print(
        f"{queue} has {count} shards now, {total} tasks in them" if total else f"{queue}: nothing to move"
    )


def _reshard(queue: str, count: int, store: str | None, namespace: str | None, wait: str) -> int:
    given = {"DUECOURSE_STORE": store, "DUECOURSE_NAMESPACE": namespace}
    try:
        settings = parse({**os.environ, **{name: value for name, value in given.items() if value}})
        if settings.store.startswith("memory://"):
            raise HarnessError("a memory:// store is gone with its process: there is nothing to reshard")
        with connect(settings.store) as redis:
            deaths = bool(settings.dead_target)
            change = Reshard(redis, settings.namespace, queue, count, _tell, deaths=deaths)
            return change.run(parse_duration(wait) / 1000)
    except StoreUnavailable as error:
        raise HarnessError(f"{error}\nRun the same command again: it goes on where it was") from error
    except (DuecourseError, ValueError) as error:
        raise HarnessError(str(error)) from error


def _tell(line: str) -> Any:
    console.out.print(line)
