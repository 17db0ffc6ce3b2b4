"""Folders of earlier versions, read once.

Up to 0.1 a folder was an ordered map with indexes of its own. Its keys are `<part> NUL <rest>`, the rest of most
`<queue>/<number> NUL ...`; instants in them are 8 bytes. What its other parts say follows from these.
"""

import json
from collections.abc import Iterable
from struct import Struct

from duecourse.adapters.embedded.keyspace import Keyspace
from duecourse.adapters.redis.keys import Keys, functions_key, keys_of, ledger_key, requests_keys, shards_key
from duecourse.adapters.redis.layout import NEWEST
from duecourse.adapters.redis.queue_settings import as_fields
from duecourse.adapters.redis.record import unpack
from duecourse.domain.queues import QueueSettings, Rate
from duecourse.domain.task import Shard, Status

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
        if act := getattr(reader, f"shard_{part.decode()}", None):
            shard, _, more = rest.partition(b"\0")
            act(_keys(shard), more, value)
        elif act := getattr(reader, f"ledger_{part.decode()}", None):
            act(rest, value)


def raise_records(space: Keyspace) -> None:
    """Have records written in the newest version, and sweeps rewrite the others: nobody else has the folder."""
    for meta in [key for key in [*space.keys()] if key.endswith(b":meta")]:
        space.write(meta, (b"layout", b"%d" % NEWEST))
        space.write(meta, (b"rewrite", b"0"))
    space.write(ledger_key(NAMESPACE).encode(), (b"layout", b"%d" % NEWEST))


class _Reader:
    """Takes in the parts: `shard_<part>` with the shard's keys, the rest of a key, and its value; `ledger_<part>`."""

    def __init__(self, space: Keyspace) -> None:
        self._space = space

    def shard_task(self, keys: Keys, sid: bytes, value: bytes) -> None:
        when, record = int.from_bytes(value[:8]), value[8:]
        task = unpack("", sid.decode(), record)
        self._write(keys.tasks, sid, record)
        if task.status is Status.SCHEDULED:
            tenant = _tenant(sid)
            self._rank(keys.due(tenant.decode()), sid, when)
            # The next claim finds turns and reached limits by itself.
            earliest = self._space.set(keys.heads.encode()).scores.get(tenant, when)
            self._rank(keys.heads, tenant, min(when, earliest))
        elif task.status is Status.LEASED:
            self._lease(keys, sid, when, task.target.encode())
        else:
            self._rank(getattr(keys, ENDS[task.status]), sid, when)

    def _lease(self, keys: Keys, sid: bytes, when: int, target: bytes) -> None:
        self._rank(keys.leased, sid, when)
        self._add(keys, b"running:" + _tenant(sid))
        if target:
            self._add(keys, b"out:" + target)
            self._rank(keys.waiting, b"\0%b\0%b" % (sid, target))

    def shard_wait(self, keys: Keys, sid: bytes, value: bytes) -> None:
        self._write(keys.tasks, sid + b"+", value)
        self._add(keys, b"successors")

    def shard_meta(self, keys: Keys, _rest: bytes, value: bytes) -> None:
        fence, bell_at = NUMBERS.unpack(value)
        self._set(keys, b"fence", fence)
        self._set(keys, b"bell_at", bell_at)

    def shard_dead_swept(self, keys: Keys, _rest: bytes, value: bytes) -> None:
        self._set(keys, b"dead_swept", int.from_bytes(value))

    def shard_group(self, keys: Keys, member: bytes, _value: bytes) -> None:
        self._rank(keys.groups, member)

    def shard_settings(self, keys: Keys, _rest: bytes, value: bytes) -> None:
        given = dict(zip(SETTINGS, json.loads(value), strict=True))
        settings = QueueSettings(**given | {"rate": given["rate"] and Rate(*given["rate"])})
        for field, setting in as_fields(settings).items():
            if setting != "":
                self._set(keys, field.encode(), int(setting))

    def shard_log(self, keys: Keys, entry: bytes, _value: bytes) -> None:
        self._rank(keys.log, entry[8:], int.from_bytes(entry[:8]))

    def shard_logged(self, keys: Keys, _rest: bytes, value: bytes) -> None:
        self._set(keys, b"logged", NUMBERS.unpack(value)[0])

    def shard_late(self, keys: Keys, place: bytes, value: bytes) -> None:
        for bucket, count in COUNT.iter_unpack(value[SLOT.size :]):
            self._write(keys.late, b"%d:%d" % (place[0], bucket), b"%d" % count)
        self._set(keys, b"late_slot", max(SLOT.unpack_from(value)[0], self._number(keys, b"late_slot")))

    def shard_aside(self, keys: Keys, rest: bytes, _value: bytes) -> None:
        target, _, place = rest.partition(b"\0")
        due_at, until, sid = int.from_bytes(place[:8]), int.from_bytes(place[8:16]), place[16:]
        self._rank(keys.waiting, target + b"\0%013d%013d\0" % (due_at, until) + sid)

    def shard_most(self, keys: Keys, target: bytes, value: bytes) -> None:
        self._set(keys, b"most:" + target, int.from_bytes(value))

    def shard_wake(self, keys: Keys, _rest: bytes, _value: bytes) -> None:
        self._set(keys, b"wake", 1)

    def ledger_shard(self, shard: bytes, count: bytes) -> None:
        self._rank(shards_key(NAMESPACE), shard + b"/" + count)
        if count != b"1":
            self._set(_keys(shard), b"shards", int(count))

    def ledger_request(self, field: bytes, value: bytes) -> None:
        kept, begun, _ = requests_keys(NAMESPACE)
        begun_at, fingerprint, state, more = int.from_bytes(value[:8]), value[8:40], value[40:41], value[41:]
        more = more[:8] + b"%d" % int.from_bytes(more[8:]) if state == b"U" else more
        self._write(kept, field, fingerprint + state + more)
        self._rank(begun, field, begun_at)

    def ledger_invoked(self, function: bytes, value: bytes) -> None:
        self._write(functions_key(NAMESPACE), function, b"%d" % int.from_bytes(value))

    def _write(self, key: str, field: bytes, value: bytes) -> None:
        self._space.write(key.encode(), (field, value))

    def _rank(self, key: str, member: bytes, score: float = 0) -> None:
        self._space.rank(key.encode(), (member, float(score)))

    def _number(self, keys: Keys, field: bytes) -> int:
        return int(self._space.hash(keys.meta.encode()).get(field, b"0"))

    def _set(self, keys: Keys, field: bytes, value: int) -> None:
        self._write(keys.meta, field, b"%d" % value)

    def _add(self, keys: Keys, field: bytes) -> None:
        self._set(keys, field, self._number(keys, field) + 1)


def _keys(shard: bytes) -> Keys:
    queue, _, number = shard.decode().rpartition("/")
    return keys_of(NAMESPACE, Shard(queue, int(number)))


def _tenant(sid: bytes) -> bytes:
    return sid.partition(b"/")[0]
