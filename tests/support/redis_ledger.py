"""Looks at a shard's own keys in Redis: whether each task stands in exactly one place and every index is true."""

import json
from collections import Counter

from duecourse.base.ids import MARK
from duecourse.ledger.connect import Client
from duecourse.ledger.embedded.in_process_redis import EmbeddedRedis
from duecourse.ledger.keys import Keys, keys_of
from duecourse.ledger.layout import COUNTED, INSIDE, OCCURRENCE
from duecourse.ledger.record import body_field, unpack
from duecourse.ledger.schedule import NEVER
from duecourse.ledger.schedule import TENANT as SCHEDULES
from duecourse.ledger.task import Shard, Status, Task, is_notification

DEFAULT = Shard()


def check(client: Client, shard: Shard = DEFAULT, namespace: str = "duecourse") -> int:
    """Fail where the keys contradict each other; answers the fence counter."""
    keys = keys_of(namespace, shard)
    fields = {key.decode(): data for key, data in client.hgetall(keys.tasks).items()}
    records = {sid: data for sid, data in fields.items() if "=" not in sid}
    _check_bodies(client, keys, fields, records)
    _check_counted(client, keys, fields, records)
    every = {sid: _task(sid, data, fields) for sid, data in records.items()}
    tasks = {sid: task for sid, task in every.items() if not sid.endswith("+")}
    tenants = {task.tenant for task in tasks.values()}
    places = {name: _members(client, keys, name) for name in ("leased", "done", "dead", *map("due:{}".format, tenants))}
    aside = _aside(client, keys)
    for sid, task in tasks.items():
        assert [name for name, members in places.items() if sid in members] == [_place(task)], sid
        if task.status == Status.SCHEDULED:
            at = places[_place(task)][sid]
            assert at in (task.due_at, aside.get(sid)) or (at < task.due_at and is_notification(sid))
    assert Counter(sid for members in places.values() for sid in members) == Counter(list(tasks))
    _check_handed_over(client, keys, list(tasks.values()))
    _check_successors(records)
    _check_groups(client, keys, every)
    _check_schedules(client, keys, tasks, records)
    for tenant in tenants:
        due = {sid: at for sid, at in places[f"due:{tenant}"].items() if tenant != SCHEDULES or at < NEVER}
        _check_head(client, keys, tenant, due)
        running = int(client.hget(keys.meta, f"running:{tenant}") or 0)
        assert running == sum(sid.startswith(f"{tenant}/") for sid in places["leased"])
    told = [int(told or 0) for told in client.hmget(keys.meta, "successors", "logged")]
    log = [int(entry.decode().partition(":")[2]) for entry in client.zrange(keys.log, 0, -1)]
    assert told == [sum(sid.endswith("+") for sid in records), sum(log)]
    if not isinstance(client, EmbeddedRedis):
        assert all(client.pttl(key) == -1 for key in client.scan_iter() if not key.endswith(b":bell"))
    return int(client.hget(keys.meta, "fence") or 0)


def _place(task: Task) -> str:
    if task.status == Status.SCHEDULED:
        return f"due:{task.tenant}"
    return "done" if task.status == Status.CANCELLED else task.status.value


def _members(client: Client, keys: Keys, name: str) -> dict[str, int]:
    return {sid.decode(): int(at) for sid, at in client.zrange(keys.prefix + name, 0, -1, withscores=True)}


def _aside(client: Client, keys: Keys) -> dict[str, int]:
    """What is put aside, or was, and until when; the last word on each counts."""
    members = [member.decode().split("\0", 2) for member in client.zrangebylex(keys.waiting, b"[\1", b"+")]
    return {sid: int(instants[13:]) for _, instants, sid in members}


def _check_handed_over(client: Client, keys: Keys, tasks: list[Task]) -> None:
    """How many each target has that it did not begin, and which; how many it may have, while tasks wait for that."""
    index = client.zrangebylex(keys.waiting, b"-", b"(\1")
    assert set(index) == {f"\0{task.tenant}/{task.id}\0{task.target}".encode() for task in tasks if task.target}
    meta = {name.decode(): told for name, told in client.hgetall(keys.meta).items()}
    out = {name: int(told) for name, told in meta.items() if name.startswith("out:")}
    assert out == Counter(f"out:{task.target}" for task in tasks if task.target)
    waiting = {
        f"most:{member.decode().partition(chr(0))[0]}" for member in client.zrangebylex(keys.waiting, b"[\1", b"+")
    }
    assert {name for name in meta if name.startswith("most:")} == waiting


def _check_successors(records: dict[str, bytes]) -> None:
    """A successor waits for a lease, and where one is said to wait there is one."""
    waiting = {sid.removesuffix("+") for sid in records if sid.endswith("+")}
    told = {sid for sid, data in records.items() if data[1] & 2}
    assert waiting == told
    assert all(records[sid][-1] in b"lVW" for sid in told)


def _task(sid: str, data: bytes, fields: dict[str, bytes]) -> Task:
    field = body_field(sid.removesuffix("+"), data)
    return unpack("default", sid, data, body=fields[field] if field else None)


def _check_bodies(client: Client, keys: Keys, fields: dict[str, bytes], records: dict[str, bytes]) -> None:
    """Each payload that stands apart is of one record, which tells its size; they are counted."""
    told = {body_field(sid.removesuffix("+"), data): data for sid, data in records.items()}
    bodies = {name: len(body) for name, body in fields.items() if "=" in name}
    assert set(bodies) == set(told) - {None}
    assert all(size > INSIDE for size in bodies.values())
    assert int(client.hget(keys.meta, "bodies") or 0) == len(bodies)


def _check_counted(client: Client, keys: Keys, fields: dict[str, bytes], records: dict[str, bytes]) -> None:
    """The bytes of each tenant are those of the payloads and results of records that are counted."""
    told = {name.decode(): int(told) for name, told in client.hgetall(keys.meta).items() if name.startswith(b"bytes:")}
    counted = Counter[str]()
    for sid, data in records.items():
        if data[1] & COUNTED:
            assert not sid.removeprefix("*/").startswith("-/"), "who has no quota is not counted"
            task = _task(sid, data, fields)
            owner = task.id.partition("/")[0] if task.tenant == SCHEDULES else task.tenant
            counted[f"bytes:{owner}"] += len(task.payload_json.encode()) + len(task.result_json.encode())
    assert told == counted


def _check_groups(client: Client, keys: Keys, tasks: dict[str, Task]) -> None:
    """A task is a member of its own group and of its successor's, and no other; schedules may be of their tenant's."""
    standing = [(sid.removesuffix("+"), task) for sid, task in tasks.items()]
    expected = {
        f"{task.tenant}/{task.group}\0{sid}".encode()
        for sid, task in standing
        if task.group and not is_notification(sid) and task.tenant != SCHEDULES
    }
    schedules = {f"*/{sid.split('/')[1]}\0{sid}".encode() for sid, task in standing if task.tenant == SCHEDULES}
    assert set(client.zrange(keys.groups, 0, -1)) - schedules == expected


def _check_schedules(client: Client, keys: Keys, tasks: dict[str, Task], records: dict[str, bytes]) -> None:
    """A schedule is scheduled, has no turn, and knows of its occurrences that have not ended, and of one that waits."""
    assert client.zscore(keys.ring, SCHEDULES) is None
    assert client.zscore(keys.parked, SCHEDULES) is None
    for sid, schedule in tasks.items():
        if not sid.startswith(f"{SCHEDULES}/"):
            continue
        assert (schedule.status, schedule.run) == (Status.SCHEDULED, 0)
        if MARK in sid:
            continue
        _, _, live, waiting = json.loads(schedule.state_json).split("|")
        found = [(time, tasks.get(f"{schedule.id}@{time}")) for time in live.split()]
        assert all(task and task.status in (Status.SCHEDULED, Status.LEASED) for _, task in found), sid
        assert all(records[f"{schedule.id}@{time}"][1] & OCCURRENCE for time in live.split()), sid
        if waiting:
            assert live
            assert waiting not in live.split()
            assert f"{schedule.id}@{waiting}" in tasks


def _check_head(client: Client, keys: Keys, tenant: str, due: dict[str, int]) -> None:
    """A tenant with scheduled work stands in the ring, or among the heads or parked, by its earliest; else nowhere."""
    places = [client.zscore(place, tenant) for place in (keys.ring, keys.heads, keys.parked)]
    assert len([at for at in places if at is not None]) == bool(due)
    assert not due or places[0] is not None or min(due.values()) in places
