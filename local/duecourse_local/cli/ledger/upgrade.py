"""`upgrade`: raise a ledger to the newest version of records."""

from typing import Annotated

import typer

from duecourse.adapters.redis.upgrade import Upgrade, Upgraded
from duecourse.domain.times import parse_duration
from duecourse.settings import Settings

from ...stack import state
from .. import client, console


def upgrade(
    store: client.StoreUsed = None,
    namespace: client.NamespaceUsed = None,
    watch: Annotated[
        str, typer.Option(help="Time to watch for callers of earlier versions.", callback=client.duration)
    ] = "PT60S",
    folder: client.StateUsed = state.DEFAULT,
) -> None:
    """Raise a ledger in Redis to the newest version of its records, and rewrite them.

    Deploy this version to every function, bridge and client first: earlier versions cannot read what is written after
    the upgrade. The command watches for them, and changes nothing if it sees one.

    Each shard also upgrades itself, after an hour without such a caller.

    The queues stay open. After an interruption, or to check, run the same command again.

    Examples:

        duecourse upgrade --store redis://10.0.0.1:6379

        duecourse upgrade --store redis://10.0.0.1:6379 --watch PT5M
    """
    with console.problems_shown():
        done = _upgrade(client.ledger(store, folder, namespace=namespace), watch)
    console.out.print(f"{done.shards} shards, {done.raised} of them upgraded now, {done.rewritten} records rewritten")


def _upgrade(settings: Settings, watch: str) -> Upgraded:
    with client.redis_of(settings, "upgrades itself when it is opened: only a ledger on Redis needs this") as redis:
        return Upgrade(redis, settings.namespace, console.out.print).run(parse_duration(watch) / 1000)
