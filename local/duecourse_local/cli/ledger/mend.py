"""`mend`: put tasks back whose index entries were deleted."""

from duecourse.adapters.redis.mend import Mend, Mended
from duecourse.settings import Settings

from ...stack import state
from .. import client, console


def mend(
    store: client.StoreUsed = None, namespace: client.NamespaceUsed = None, folder: client.StateUsed = state.DEFAULT
) -> None:
    """Put tasks back whose index entries are gone: another program deleted a key in Redis, or Redis evicted it.

    The command looks at every task, and queues stay open. Tasks whose records are gone too are lost.

    A lease without its entry gets a new end, and the task runs again if nobody settles it by then.

    Examples:

        duecourse mend --store redis://10.0.0.1:6379
    """
    with console.problems_shown():
        done = _mend(client.ledger(store, folder, namespace=namespace))
    unreadable = f", {done.unreadable} records cannot be read" if done.unreadable else ""
    console.out.print(f"{done.tasks} tasks, {done.put_back} entries put back{unreadable}")


def _mend(settings: Settings) -> Mended:
    with client.redis_of(settings, "is reached by no other program: only a ledger on Redis is mended") as redis:
        return Mend(redis, settings.namespace, settings.lease_ms, console.out.print).run()
