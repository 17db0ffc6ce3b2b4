"""Record of schedule files on Redis (ports.schedule_file): one hash beside the record of shards, without TTL."""

import json
from collections.abc import Collection, Iterable

from duecourse.adapters.redis.arguments import Argument
from duecourse.adapters.redis.keys import files_key
from duecourse.adapters.redis.scripts import Scripts
from duecourse.domain.schedule_file import Entry, Noted

ENTRIES = b"entries:"


class RedisFileRecord:
    """The record of a namespace, beside a ledger on the same client."""

    def __init__(self, scripts: Scripts, namespace: str) -> None:
        self._scripts = scripts
        self._key = files_key(namespace)

    def read(self) -> Noted:
        """See FileRecord."""
        return _noted(self._scripts.command("HGETALL", self._key).items())

    def highest(self) -> int:
        """See FileRecord."""
        return _number(self._scripts.command("HGET", self._key, "begun"))

    def begin(self, number: int, digest: str, entries: Collection[Entry]) -> Noted:
        """See FileRecord."""
        made = json.dumps(sorted(entries), separators=(",", ":"), ensure_ascii=False)
        return self._step(number, "begin", digest, made)

    def finish(self, number: int) -> bool:
        """See FileRecord."""
        return self._step(number, "finish").applied == number

    def settle(self, number: int) -> bool:
        """See FileRecord."""
        return self._step(number, "settle").settled == number

    def _step(self, number: int, step: str, *rest: str) -> Noted:
        arguments: tuple[Argument, ...] = (self._key, self._scripts.clock(), number, step, *rest)
        flat = self._scripts.evaluate("file", (1, arguments))
        return _noted(zip(flat[::2], flat[1::2], strict=True))


def _noted(fields: Iterable[tuple[bytes, bytes]]) -> Noted:
    found = dict(fields)
    begun, begun_at, applied, settled = (
        _number(found.get(name)) for name in (b"begun", b"begun_at", b"applied", b"settled")
    )
    made = [json.loads(value) for name, value in found.items() if name.startswith(ENTRIES)]
    entries = frozenset(Entry(*one) for rows in made for one in rows)
    return Noted(begun, begun_at, applied, settled, found.get(b"digest", b"").decode(), entries)


def _number(value: bytes | None) -> int:
    return int(value or 0)
