"""Export of a ledger: every task and schedule as it is, with the settings of queues and the keys of seals."""

import json
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from duecourse import __version__
from duecourse.base.hints import near_name
from duecourse.base.times import Clock, format_instant
from duecourse.ledger.connect import Client
from duecourse.ledger.keys import FIELDS, keys_of, parse_shards, seals_key, settings_of, shards_key
from duecourse.ledger.maintenance import SUCCESSOR, Scan, ScannedTask
from duecourse.ledger.operations.namespace_records import CURRENT, FileRecord
from duecourse.ledger.queue import SETTINGS, QueueSettings
from duecourse.ledger.queue_history import FIELDS as HISTORY
from duecourse.ledger.record import UNREADABLE, body_field, unpack, without_lease
from duecourse.ledger.schedule import TENANT as SCHEDULES
from duecourse.ledger.script_calls import Scripts
from duecourse.ledger.task import Shard, Status, Task
from duecourse.queues.http import show_settings
from duecourse.tasks.http import show_task

from .format import FORMAT


class Export:
    """One export of one ledger; `tell` receives a line for each unreadable record and each unknown queue.

    The queues stay open: each task is as it was at some moment of the export. Raises StoreUnavailable.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        queues: Collection[str],
        tell: Callable[[str], object],
        clock: Clock | None = None,
    ) -> None:
        """`clock` is in place of the server's, for a ledger in this process."""
        self._scripts = Scripts(client, clock)
        self._clock = clock
        self._namespace = namespace
        self._tell = tell
        on = parse_shards(self._scripts.command("SMEMBERS", shards_key(namespace)))
        known = sorted({shard.queue for shard, _ in on})
        for queue in sorted({*queues} - {*known}):  # it may have had no task for a while: no error, yet maybe a slip
            tell(f"nothing is exported of the unknown queue {queue}{near_name(queue, known)}")
        self._shards = sorted((shard, count) for shard, count in on if not queues or shard.queue in queues)
        self.tasks = 0
        self.unreadable = 0

    def lines(self) -> Iterator[str]:
        """The lines, without their ends."""
        at = format_instant(self._clock.now() if self._clock else self._server_time())
        head = {"format": FORMAT, "by": f"duecourse {__version__}", "namespace": self._namespace, "at": at}
        yield _line("export", head)
        yield from map(self._queue, {shard.queue: count for shard, count in self._shards}.items())
        yield from self._keys()
        yield from self._files()
        for shard, _ in self._shards:
            yield from self._history(shard)
        for shard, _ in self._shards:
            yield from self._tasks(shard)
        yield _line("end", {"tasks": self.tasks})

    def _server_time(self) -> int:
        seconds, micros = self._scripts.command("TIME")
        return int(seconds) * 1_000 + int(micros) // 1_000

    def _queue(self, of: tuple[str, int]) -> str:
        queue, count = of
        found = self._scripts.command("HMGET", keys_of(self._namespace, Shard(queue)).meta, *FIELDS)
        settings, default = settings_of(found), QueueSettings()
        given = {one.name for one in SETTINGS if getattr(settings, one.field) != getattr(default, one.field)}
        shown = {name: value for name, value in show_settings(settings).items() if name in given}
        return _line("queue", {"name": queue, "shards": count, "settings": shown})

    def _keys(self) -> Iterator[str]:
        found = self._scripts.command("HGETALL", seals_key(self._namespace))
        current = found.pop(CURRENT.encode(), b"").decode()
        for id, wrapped in found.items():
            yield _line("key", {"id": id.decode(), "wrapped": _text(wrapped), "seals": id.decode() == current})

    def _files(self) -> Iterator[str]:
        noted = FileRecord(self._scripts, self._namespace).read()
        if noted.begun:
            applied = noted.applied == noted.begun
            entries = sorted(noted.entries)
            yield _line("file", {"number": noted.begun, "digest": noted.digest, "applied": applied, "entries": entries})

    def _history(self, shard: Shard) -> Iterator[str]:
        """The numbers of a shard over time, if it has any."""
        keys = keys_of(self._namespace, shard)
        texts, numbers = self._scripts.read(("HMGET", keys.history, *HISTORY), ("HGET", keys.meta, "numbers"))
        found = dict(zip((*HISTORY, "numbers"), (*texts, numbers), strict=True))
        if given := {name: _text(text) for name, text in found.items() if text}:
            yield _line("history", {"queue": shard.queue, "shard": shard.number, **given})

    def _tasks(self, shard: Shard) -> Iterator[str]:
        scan = Scan(self._scripts, self._namespace, shard.queue)
        for batch in scan.batches(shard):
            items = [self._newest(shard, item) for item in batch if not item.sid.endswith(SUCCESSOR)]
            yield from map(self._task, items, scan.whens(shard, items))
        for sid, problem in scan.unreadable.items():
            self.unreadable += 1
            self._tell(f"{shard}: the record of {sid} cannot be read, and is left out: {problem}")

    def _newest(self, shard: Shard, item: ScannedTask) -> ScannedTask:
        """The replacement that waits until a task has run, else the task."""
        if item.task.status is not Status.LEASED:
            return item
        tasks = keys_of(self._namespace, shard).tasks
        found: Sequence[bytes | None] = self._scripts.command("HMGET", tasks, item.sid + SUCCESSOR, item.sid)
        data = found[0] or found[1]
        if data is None:
            return item
        field = body_field(item.sid, data)
        body = self._scripts.command("HGET", tasks, field) if field else None
        try:
            return ScannedTask(shard, item.sid, data, unpack(shard.queue, item.sid, data, body=body), body or b"")
        except UNREADABLE:  # it has ended since
            return item

    def _task(self, item: ScannedTask, ended_at: int) -> str:
        self.tasks += 1
        when = item.task.due_at if item.task.status is Status.LEASED else ended_at
        kept = {"when": when, "record": _text(without_lease(item.data))}
        body = {"payload": _text(item.body)} if item.body else {}
        return _line("task", {"queue": item.shard.queue, "id": item.sid, "shown": _view(item.task), **kept, **body})


def _view(task: Task) -> dict[str, Any]:
    """Fields of a task, or of a schedule, that a reader sees."""
    if task.tenant == SCHEDULES:
        tenant, _, id = task.id.partition("/")
        return {"schedule": id, "tenant": tenant, "kind": task.kind, "next_at": format_instant(task.due_at)}
    return {name: value for name, value in show_task(task).items() if name != "history"}


def _text(value: bytes) -> str:
    return b64encode(value).decode()


def _line(name: str, value: Any) -> str:
    return json.dumps({name: value}, separators=(",", ":"), ensure_ascii=False)
