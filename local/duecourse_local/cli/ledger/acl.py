"""`acl`: the line that makes a login with the least rights in Redis."""

from typing import Annotated

import typer

from duecourse.adapters.redis.access import Rights
from duecourse.adapters.redis.connect import is_cluster, open_client
from duecourse.settings import Settings

from ...stack import state
from ...stack.problems import HarnessError
from ...threads import SCHEMES
from .. import client, console


def acl(
    store: client.StoreUsed = None,
    namespace: client.NamespaceUsed = None,
    bridge: Annotated[
        bool, typer.Option("--bridge", help="Print the line of a bridge alone, which changes no task.")
    ] = False,
    before_7: Annotated[
        bool, typer.Option("--before-7", help="Print the line for Redis 6.2, which knows fewer commands.")
    ] = False,
    folder: client.StateUsed = state.DEFAULT,
) -> None:
    """Print the command that makes a user in Redis with the rights of duecourse, and no more.

    Enter it in redis-cli, as an administrator, at each server. Replace PASSWORD.

    Examples:

        duecourse acl

        duecourse acl --bridge --store redis-cluster://10.0.0.1:6379
    """
    with console.problems_shown():
        given = client.ledger(store, folder, is_opened=False, namespace=namespace)
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
