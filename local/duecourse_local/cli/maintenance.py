"""Upkeep of a ledger in Redis: `reshard`, `mend`, `rotate` and `acl`."""

from contextlib import closing
from typing import Annotated

import typer

from duecourse.app import App
from duecourse.base.times import parse_duration
from duecourse.errors import DuecourseError
from duecourse.ledger.connect import is_cluster, open_client
from duecourse.ledger.maintenance import Mend, Mended, Reshard
from duecourse.ledger.redis_acl import Rights
from duecourse.ledger.sharding import MAX_SHARDS
from duecourse.settings import Settings

from ..errors import HarnessError
from ..harness import state
from ..harness.addresses import SCHEMES
from . import console, options, target


def reshard(
    queue: Annotated[str, typer.Argument(help="Name of the queue.")],
    count: Annotated[int, typer.Argument(help="New number of shards.", min=1, max=MAX_SHARDS)],
    store: options.StoreUsed = None,
    namespace: options.NamespaceUsed = None,
    wait: Annotated[
        str,
        typer.Option(
            help="Maximum time to wait for running tasks to end, before the first change.", callback=options.duration
        ),
    ] = "PT60S",
    folder: options.StateUsed = state.DEFAULT,
) -> None:
    """Change the number of shards of a queue, and move its tasks in all states.

    The command pauses the queue and waits until no task runs. Then it closes the queue, moves the tasks, and opens the
    queue again. A closed queue rejects every add.

    If the command is interrupted, run it again: until then the queue stays closed. If it was still waiting for running
    tasks, the old count opens the queue again, too.

    Afterwards, set DUECOURSE_SHARDS to the new count in every function and client.

    Examples:

        duecourse reshard default 8 --store redis-cluster://10.0.0.1:6379
    """
    with console.problems_shown():
        total = _reshard(queue, count, target.ledger_settings(store, folder, namespace=namespace), wait)
    console.out.print(
        f"{queue} has {count} shards now, {total} tasks in them" if total else f"{queue}: nothing to move"
    )


def _reshard(queue: str, count: int, settings: Settings, wait: str) -> int:
    with target.open_redis(settings, "has no shards to move: only a queue on Redis can be resharded") as redis:
        tell, deaths = console.out.print, bool(settings.dead_target)
        change = Reshard(redis, settings.namespace, queue, count, tell, wait=settings.wait, deaths=deaths)
        return change.run(parse_duration(wait) / 1000)


def mend(
    store: options.StoreUsed = None,
    namespace: options.NamespaceUsed = None,
    folder: options.StateUsed = state.DEFAULT,
) -> None:
    """Put tasks where their records say: a program deleted a key in Redis, or Redis evicted it or rejected a change.

    The command looks at every task, and queues stay open. Tasks whose records are gone too are lost.

    A lease without its entry gets a new end, and the task runs again if nobody settles it by then.

    Examples:

        duecourse mend --store redis://10.0.0.1:6379
    """
    with console.problems_shown():
        done = _mend(target.ledger_settings(store, folder, namespace=namespace))
    unreadable = f", {done.unreadable} records cannot be read" if done.unreadable else ""
    console.out.print(f"{done.tasks} tasks, {done.put_back} entries put right{unreadable}")


def _mend(settings: Settings) -> Mended:
    with target.open_redis(settings, "is reached by no other program: only a ledger on Redis is mended") as redis:
        return Mend(redis, settings.namespace, settings.lease_ms, console.out.print).run()


def rotate(
    store: options.StoreUsed = None,
    namespace: options.NamespaceUsed = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="KMS key (ARN, id or alias/…), or file:///path of a local key, that wraps the new data key.",
            show_default="that of the running stack, or DUECOURSE_SEAL_KEY",
        ),
    ] = None,
    folder: options.StateUsed = state.DEFAULT,
) -> None:
    """Make a new data key, with which credentials in tasks are sealed from now on.

    Every process uses the new key at its next add, and queues stay open.

    Tasks that wait keep the seal of their add, and the ledger keeps the earlier keys to open them.

    Rotate after a change of the KMS key, too. Delete the earlier KMS key once no task from before is left.

    Examples:

        duecourse rotate

        duecourse rotate --store rediss://10.0.0.1:6379 --key alias/duecourse
    """
    with console.problems_shown():
        made = _rotate(target.ledger_settings(store, folder, namespace=namespace, seal_key=key))
    console.out.print(f"credentials are sealed with the data key {made} from now on")


def _rotate(settings: Settings) -> str:
    if not settings.seal_key:
        raise HarnessError("no key is set: give --key, or set DUECOURSE_SEAL_KEY")
    try:
        with closing(App(settings)) as app:
            return app.seals.rotate()
    except DuecourseError as error:
        raise HarnessError(str(error)) from error


def acl(
    store: options.StoreUsed = None,
    namespace: options.NamespaceUsed = None,
    bridge: Annotated[
        bool, typer.Option("--bridge", help="Print the line of a bridge alone, which changes no task.")
    ] = False,
    before_7: Annotated[
        bool, typer.Option("--before-7", help="Print the line for Redis 6.2, which knows fewer commands.")
    ] = False,
    folder: options.StateUsed = state.DEFAULT,
) -> None:
    """Print the command that makes a user in Redis with the rights of duecourse, and no more.

    Enter it in redis-cli, as an administrator, at each server. Replace PASSWORD.

    Examples:

        duecourse acl

        duecourse acl --bridge --store redis-cluster://10.0.0.1:6379
    """
    with console.problems_shown():
        given = target.ledger_settings(store, folder, is_opened=False, namespace=namespace)
        in_cluster, database = _place(given)
    rights = Rights(
        given.namespace,
        bridge=bridge,
        database=database,
        events=given.events == "on",
        replicas=bool(given.wait),
        cluster=in_cluster,
        reads_apart=not before_7,
    )
    typer.echo(rights.line())


def _place(given: Settings) -> tuple[bool, int]:
    """True for a cluster; the number of the database. Raises HarnessError."""
    if given.store_secret:
        raise HarnessError("DUECOURSE_STORE_SECRET is not read for this: give the store's URL as --store")
    if not given.store:
        return False, 0
    if given.store.startswith(SCHEMES):
        raise HarnessError(f"{given.store} is reached by no other program: only Redis has users")
    if is_cluster(given.store):
        return True, 0
    with open_client(given.store) as unopened:
        return False, unopened.get_connection_kwargs().get("db") or 0
