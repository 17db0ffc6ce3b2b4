"""What a ledger keeps once all of it was deleted: no more than one in which nothing ever failed."""

from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any

from duecourse import Client, Status
from duecourse.ledger.connect import Client as Redis
from duecourse.ledger.connect import primaries_of
from tests.support.empty_ledger import STAY

ENDED = (Status.DONE, Status.CANCELLED, Status.DEAD)
OF_ALL = ("*:shards", "*:{*}:deployed", "*:{*}:ledger", "*:{functions}:*", "*:{requests}:*")
"""Keys that are of no queue: which shards, kinds and functions there are, and answers that are kept for a day."""
FOREVER = -1
"""Answer of PTTL for a key that has no end."""
OF_QUEUES = {
    **STAY,
    "shards": "how many the queue has",
    "revision": "the version of its settings",
    "put_back": "until the clock has caught up with the fences",
    "forgets": "since when old tasks are forgotten",
}


def empty(client: Client) -> None:
    """Delete every schedule and every task that has ended, and take the queues' settings back."""
    for queue in [one.name for one in client.list_queues()]:
        while schedules := client.schedules.list(queue, limit=100).schedules:
            for status in schedules:
                client.schedules.delete(status.schedule.id, queue)
        for state in ENDED:
            cursor: str | None = ""
            while cursor is not None:
                cursor = client.purge(queue, state=str(state), limit=1_000, cursor=cursor or None).next_cursor
        client.set_queue(queue, paused=None, max_running=None)


def left(redis: Redis, namespace: str = "duecourse") -> list[str]:
    """Each key and field that an emptied ledger has and should not; sorted."""
    found: set[str] = set()
    for node in primaries_of(redis).values():
        for key in node.scan_iter(f"{namespace}*", count=1_000):
            found |= set(_unwanted(node, key.decode()))
    return sorted(found)


def _unwanted(node: Any, key: str) -> Iterator[str]:
    if key.endswith(("}:late", "}:history")) or any(fnmatch(key, one) for one in OF_ALL):
        return
    if fnmatch(key, "*:{canary/*}:bell") and node.pttl(key) != FOREVER:
        return  # a bridge hangs one now and then, which goes by itself
    if not key.endswith("}:meta"):
        yield key
        return
    for field in node.hkeys(key):
        if not any(fnmatch(field.decode(), one) for one in OF_QUEUES):
            yield f"{key} {field.decode(errors='replace')}"
