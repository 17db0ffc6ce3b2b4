"""Looks at a shard's own keys in Redis: whether each task stands in exactly one place and every index is true."""

from collections import Counter

import redis

from duecourse.adapters.record import unpack
from duecourse.domain.task import Status

PREFIX = "duecourse:{default/0}:"
TENANT = b"-"
PLACES = {
    Status.SCHEDULED: "due:-",
    Status.LEASED: "leased",
    Status.DONE: "done",
    Status.CANCELLED: "done",
    Status.DEAD: "dead",
}


def check(client: redis.Redis) -> int:
    """Fail where the keys contradict each other; answers the fence counter."""
    records = {key.decode(): data for key, data in client.hgetall(PREFIX + "tasks").items()}
    tasks = {sid: unpack("default", sid, data) for sid, data in records.items() if not sid.endswith("+")}
    places = {name: _members(client, name) for name in set(PLACES.values())}
    for sid, task in tasks.items():
        standing = [name for name, members in places.items() if sid in members]
        assert standing == [PLACES[task.status]], (sid, task.status, standing)
        if task.status == Status.SCHEDULED:
            assert places["due:-"][sid] == task.due_at
    assert Counter(sid for members in places.values() for sid in members) == Counter(list(tasks))
    _check_successors(records)
    _check_heads(client, places["due:-"])
    assert int(client.hget(PREFIX + "meta", "running:-") or 0) == len(places["leased"])
    assert all(client.pttl(key) == -1 for key in client.scan_iter())
    return int(client.hget(PREFIX + "meta", "fence") or 0)


def _members(client: redis.Redis, name: str) -> dict[str, int]:
    return {sid.decode(): int(at) for sid, at in client.zrange(PREFIX + name, 0, -1, withscores=True)}


def _check_successors(records: dict[str, bytes]) -> None:
    """A successor waits for a lease, and where one is said to wait there is one."""
    waiting = {sid.removesuffix("+") for sid in records if sid.endswith("+")}
    told = {sid for sid, data in records.items() if data[2] & 2}
    assert waiting == told
    assert all(records[sid][1] == ord("l") for sid in told)


def _check_heads(client: redis.Redis, due: dict[str, int]) -> None:
    """A tenant with scheduled work stands among the heads, by its earliest, or in the ring; one without in neither."""
    head, turn = client.zscore(PREFIX + "heads", TENANT), client.zscore(PREFIX + "ring", TENANT)
    if not due:
        assert (head, turn) == (None, None)
    elif turn is None:
        assert head == min(due.values())
    else:
        assert head is None
