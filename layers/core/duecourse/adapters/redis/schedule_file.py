"""Record of schedule files on Redis (ports.schedule_file): one hash beside the record of shards, without TTL."""

import json
from collections.abc import Sequence

from duecourse.adapters.redis.keys import files_key
from duecourse.adapters.redis.scripts import Scripts
from duecourse.domain.schedule_file import Entry, Noted


class RedisFileRecord:
    """The record of a namespace, beside a ledger on the same client."""

    def __init__(self, scripts: Scripts, namespace: str) -> None:
        self._scripts = scripts
        self._key = files_key(namespace)

    def read(self) -> Noted:
        """See FileRecord."""
        return _noted(self._scripts.command("HMGET", self._key, "begun", "applied", "entries"))

    def begin(self, number: int) -> Noted:
        """See FileRecord."""
        return _noted(self._scripts.evaluate("file", (1, (self._key, number, "begin"))))

    def finish(self, number: int, entries: Sequence[Entry]) -> bool:
        """See FileRecord."""
        arguments = (self._key, number, "finish", json.dumps(entries, separators=(",", ":")))
        noted = _noted(self._scripts.evaluate("file", (1, arguments)))
        return noted.begun == noted.applied == number


def _noted(fields: Sequence[bytes | None]) -> Noted:
    begun, applied, entries = fields
    return Noted(int(begun or 0), int(applied or 0), tuple(Entry(*one) for one in json.loads(entries or b"[]")))
