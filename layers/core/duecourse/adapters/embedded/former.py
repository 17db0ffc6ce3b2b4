"""Folders of earlier versions, read once.

Up to 0.1 a folder was an ordered map with indexes of its own. Its keys are `<part> NUL <rest>`, the rest of most
`<queue>/<number> NUL ...`; instants in them are 8 bytes. What its other parts say follows from these.
"""

import json
from collections.abc import Callable, Iterable
from struct import Struct

from duecourse.adapters.embedded.keyspace import Keyspace
from duecourse.adapters.redis.keys import Keys, functions_key, keys_of, ledger_key, requests_keys, shards_key
from duecourse.adapters.redis.layout import NEWEST
from duecourse.adapters.redis.queues import as_fields
from duecourse.adapters.redis.record import unpack
from duecourse.domain.queues import QueueSettings, Rate
from duecourse.domain.task import Shard, Status, Task

LAYOUT = b"duecourse 4"
LAYOUTS = (LAYOUT, b"duecourse keyspace 4")
"""That one, and the keyspace of now with records of version 4."""
NAMESPACE = "duecourse"
SETTINGS = ("paused", "max_running", "rate", "tenant_max_running", "priority", "retention_ms", "lease_ms")
"""Settings of a queue in the order in which these folders have their values."""
NUMBERS, SLOT, COUNT = Struct(">QQ"), Struct(">Q"), Struct(">HI")
ENDS = {Status.DONE: "done", Status.CANCELLED: "done", Status.DEAD: "dead"}


def read(items: Iterable[tuple[bytes, bytes]], space: Keyspace) -> None:
    """Write the content of the items into an empty keyspace."""
    reader = _Reader(space)
    for name, value in items:
        part, _, rest = name.partition(b"\0")
        act: Callable[[bytes, bytes], None] | None = getattr(reader, f"read_{part.decode()}", None)
        if act:
            act(rest, value)
    reader.end()


def raise_records(space: Keyspace) -> None:
    """Have records written in the newest version, and sweeps rewrite the others: nobody else has the folder."""
    for meta in [key for key in [*space.keys()] if key.endswith(b":meta")]:
        space.write(meta, (b"layout", b"%d" % NEWEST))
        space.write(meta, (b"rewrite", b"0"))
    space.write(ledger_key(NAMESPACE).encode(), (b"layout", b"%d" % NEWEST))


class _Reader:
    """Takes in the parts, `read_<part>` each: what follows the part's name, and the value."""

    def __init__(self, space: Keyspace) -> None:
        self._space = space
        self._heads: dict[tuple[Keys, bytes], int] = {}

    def read_task(self, rest: bytes, value: bytes) -> None:
        shard, keys, sid = _split(rest)
        when, record = int.from_bytes(value[:8]), value[8:]
        task = unpack(shard.queue, sid.decode(), record)
        self._space.write(keys.tasks.encode(), (sid, record))
        if task.status is Status.SCHEDULED:
            self._schedule(keys, sid, when)
        elif task.status is Status.LEASED:
            self._lease(keys, sid, when, task)
        else:
            self._space.rank(getattr(keys, ENDS[task.status]).encode(), (sid, when))

    def read_wait(self, rest: bytes, value: bytes) -> None:
        _, keys, sid = _split(rest)
        self._space.write(keys.tasks.encode(), (sid + b"+", value))
        self._add(keys, b"successors")

    def read_meta(self, rest: bytes, value: bytes) -> None:
        _, keys, _ = _split(rest)
        fence, bell_at = NUMBERS.unpack(value)
        self._set(keys, b"fence", fence)
        self._set(keys, b"bell_at", bell_at)

    def read_dead_swept(self, rest: bytes, value: bytes) -> None:
        self._set(_split(rest)[1], b"dead_swept", int.from_bytes(value))

    def read_group(self, rest: bytes, _value: bytes) -> None:
        _, keys, member = _split(rest)
        self._space.rank(keys.groups.encode(), (member, 0.0))

    def read_settings(self, rest: bytes, value: bytes) -> None:
        _, keys, _ = _split(rest)
        told = QueueSettings(**dict(zip(SETTINGS, json.loads(value), strict=True)))
        told = told._replace(rate=Rate(*told.rate) if told.rate else None)
        for field, setting in as_fields(told).items():
            if setting != "":
                self._set(keys, field.encode(), int(setting))

    def read_shard(self, rest: bytes, value: bytes) -> None:
        _, keys, _ = _split(rest + b"\0")
        self._space.rank(shards_key(NAMESPACE).encode(), (rest + b"/" + value, 0.0))
        if value != b"1":
            self._set(keys, b"shards", int(value))

    def read_log(self, rest: bytes, _value: bytes) -> None:
        _, keys, entry = _split(rest)
        self._space.rank(keys.log.encode(), (entry[8:], int.from_bytes(entry[:8])))

    def read_logged(self, rest: bytes, value: bytes) -> None:
        self._set(_split(rest)[1], b"logged", NUMBERS.unpack(value)[0])

    def read_late(self, rest: bytes, value: bytes) -> None:
        _, keys, place = _split(rest)
        for bucket, count in COUNT.iter_unpack(value[SLOT.size :]):
            self._space.write(keys.late.encode(), (b"%d:%d" % (place[0], bucket), b"%d" % count))
        newest = max(SLOT.unpack_from(value)[0], int(self._space.hash(keys.meta.encode()).get(b"late_slot", b"0")))
        self._set(keys, b"late_slot", newest)

    def read_aside(self, rest: bytes, _value: bytes) -> None:
        _, keys, place = _split(rest)
        target, _, place = place.partition(b"\0")
        due_at, until, sid = int.from_bytes(place[:8]), int.from_bytes(place[8:16]), place[16:]
        self._space.rank(keys.waiting.encode(), (target + b"\0%013d%013d\0" % (due_at, until) + sid, 0.0))

    def read_most(self, rest: bytes, value: bytes) -> None:
        _, keys, target = _split(rest)
        self._set(keys, b"most:" + target, int.from_bytes(value))

    def read_wake(self, rest: bytes, _value: bytes) -> None:
        self._set(_split(rest)[1], b"wake", 1)

    def read_request(self, rest: bytes, value: bytes) -> None:
        kept, begun = (key.encode() for key in requests_keys(NAMESPACE))
        begun_at, fingerprint, state, more = int.from_bytes(value[:8]), value[8:40], value[40:41], value[41:]
        more = more[:8] + b"%d" % int.from_bytes(more[8:]) if state == b"U" else more
        self._space.write(kept, (rest, fingerprint + state + more))
        self._space.rank(begun, (rest, begun_at))

    def read_invoked(self, rest: bytes, value: bytes) -> None:
        self._space.write(functions_key(NAMESPACE).encode(), (rest, b"%d" % int.from_bytes(value)))

    def end(self) -> None:
        """Note the earliest task of each tenant; the next claim finds turns and reached limits by itself."""
        for (keys, tenant), at in self._heads.items():
            self._space.rank(keys.heads.encode(), (tenant, at))

    def _schedule(self, keys: Keys, sid: bytes, when: int) -> None:
        tenant = _tenant(sid)
        self._space.rank(keys.due(tenant.decode()).encode(), (sid, when))
        self._heads[keys, tenant] = min(when, self._heads.get((keys, tenant), when))

    def _lease(self, keys: Keys, sid: bytes, when: int, task: Task) -> None:
        self._space.rank(keys.leased.encode(), (sid, when))
        self._add(keys, b"running:" + _tenant(sid))
        if task.target:
            self._add(keys, b"out:" + task.target.encode())
            self._space.rank(keys.waiting.encode(), (b"\0%b\0%b" % (sid, task.target.encode()), 0.0))

    def _set(self, keys: Keys, field: bytes, value: int) -> None:
        self._space.write(keys.meta.encode(), (field, b"%d" % value))

    def _add(self, keys: Keys, field: bytes) -> None:
        self._set(keys, field, int(self._space.hash(keys.meta.encode()).get(field, b"0")) + 1)


def _split(rest: bytes) -> tuple[Shard, Keys, bytes]:
    """The shard that a key is of, that one's keys in the keyspace, and what follows."""
    name, _, more = rest.partition(b"\0")
    queue, _, number = name.decode().rpartition("/")
    shard = Shard(queue, int(number))
    return shard, keys_of(NAMESPACE, shard), more


def _tenant(sid: bytes) -> bytes:
    return sid.partition(b"/")[0]
