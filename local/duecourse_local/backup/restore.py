"""Restore of an export: what the ledger lacks is added, what is there stays."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from duecourse.adapters.redis.arguments import MAX_PIECE_BYTES
from duecourse.adapters.redis.connect import Client
from duecourse.adapters.redis.keys import on_record, seals_key, shards_key
from duecourse.adapters.redis.scan import BATCH
from duecourse.adapters.redis.schedule_file import RedisFileRecord
from duecourse.adapters.redis.scripts import Scripts
from duecourse.adapters.redis.seal_keys import CURRENT
from duecourse.adapters.redis.store import RedisStore
from duecourse.adapters.redis.verbs import Verbs
from duecourse.domain.batches import cut, grouped
from duecourse.domain.schedule_file import Entry
from duecourse.domain.shards import Sharding
from duecourse.domain.task import Shard
from duecourse.errors import FieldError, InvalidInput

from .lines import End, FileLine, Head, KeyLine, QueueLine, TaskLine, parse


class Restored(NamedTuple):
    """Number of tasks that were added, and of those that were there already."""

    added: int
    kept: int


class Restore:
    """One restore into one ledger, which may be in use; after an interruption, run it again from the beginning.

    `tell` receives the number of tasks so far, now and then. `wait` is the number of replicas that must have each task.
    """

    def __init__(self, client: Client, namespace: str, wait: int, tell: Callable[[int], object]) -> None:
        self._client = client
        self._namespace = namespace
        self._wait = wait
        self._tell = tell
        self._made_in = namespace
        self._is_whole = False
        members = on_record(Scripts(client, None).command("SMEMBERS", shards_key(namespace)))
        self._counts = {shard.queue: count for shard, count in members}
        self._verbs = self._at_these_counts()

    def run(self, texts: Iterable[str]) -> Restored:
        """Add all tasks of the lines that the ledger lacks.

        Raises InvalidInput, which names the line; the tasks of the lines before it may be added. Raises StoreMisused
        and StoreUnavailable.
        """
        added = seen = 0
        for tasks in cut(self._tasks(texts), _size, most=BATCH, max_bytes=MAX_PIECE_BYTES):
            added += self._add(tasks)
            seen += len(tasks)
            self._tell(seen)
        if not self._is_whole:
            raise InvalidInput([FieldError("the last line", f"is missing: the export was cut off after {seen} tasks")])
        return Restored(added, seen - added)

    def _tasks(self, texts: Iterable[str]) -> Iterator[TaskLine]:
        """The tasks of the lines; what the other lines say is done on the way."""
        for number, text in enumerate(texts, 1):
            line = parse(number, text)
            if isinstance(line, Head) != (number == 1):
                raise InvalidInput(
                    [FieldError(f"line {number}", "must be the head of an export, and no other line may")]
                )
            match line:
                case Head():
                    self._made_in = line.namespace
                case QueueLine():
                    self._make(line)
                case KeyLine():
                    self._keep(line)
                case FileLine():
                    self._note(line)
                case End():
                    self._is_whole = True
                case TaskLine():
                    yield line

    def _make(self, queue: QueueLine) -> None:
        """Make a queue as it was; one that is there stays as it is, in settings and number of shards."""
        if queue.name in self._counts:
            return
        self._counts[queue.name] = queue.shards
        self._verbs = self._at_these_counts()
        if changes := queue.settings.changes():
            store = RedisStore(self._client, self._namespace, sharding=Sharding(self._counts), wait=self._wait)
            store.configure(queue.name, changes)

    def _keep(self, key: KeyLine) -> None:
        """Keep a data key; the one that seals now stays the one. Raises InvalidInput in another namespace."""
        if self._made_in != self._namespace:
            problem = f"has seals, which open in namespace {self._made_in} alone: give --namespace {self._made_in}"
            raise InvalidInput([FieldError("the export", problem)])
        keys, scripts = seals_key(self._namespace), self._verbs.scripts
        scripts.command("HSETNX", keys, key.id, key.wrapped)
        if key.seals:
            scripts.command("HSETNX", keys, CURRENT, key.id)

    def _note(self, file: FileLine) -> None:
        """Note a file of schedules as it was, unless one with a higher number is there."""
        record = RedisFileRecord(self._verbs.scripts, self._namespace)
        record.begin(file.number, file.digest, [Entry(*one) for one in file.entries])
        if file.applied:
            record.finish(file.number)

    def _add(self, lines: Sequence[TaskLine]) -> int:
        """Number of the tasks that were added."""
        return sum(self._put(shard, own) for shard, own in grouped(lines, self._home).items())

    def _put(self, shard: Shard, lines: Sequence[TaskLine]) -> int:
        self._verbs.record.keep(shard)
        tenants = list(dict.fromkeys(line.id.partition("/")[0] for line in lines))
        every = [part for line in lines for part in (line.id, line.when, line.record, line.payload)]
        return int(self._verbs.run("put", shard, tenants, (1, *every))[2])

    def _home(self, line: TaskLine) -> Shard:
        task = line.task()
        return self._verbs.sharding.of(line.queue, task.id, task.group)

    def _at_these_counts(self) -> Verbs:
        return Verbs(self._client, self._namespace, Sharding(self._counts), None, self._wait)


def _size(line: TaskLine) -> int:
    return len(line.record) + len(line.payload)
