"""Restore of an export: what the ledger lacks is added, what is there stays."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from tempfile import TemporaryFile
from typing import BinaryIO, NamedTuple

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

from .lines import MAX_LINE, End, FileLine, Given, Head, KeyLine, QueueLine, TaskLine, parse, wrong

MOST_PROBLEMS = 20
"""Most problems of a bad file that are named."""


class Restored(NamedTuple):
    """Number of tasks that were added, of those that were there already, and of bad lines."""

    added: int
    kept: int
    bad: int = 0


class Lines:
    """The lines of a file, from its beginning each time; of a pipe too, which is kept in a file meanwhile."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        if not file.seekable():
            self._file = TemporaryFile()  # noqa: SIM115 - closed with this object
            shutil.copyfileobj(file, self._file)

    def __iter__(self) -> Iterator[str]:
        """A line that is too long comes in several, each of which is bad."""
        self._file.seek(0)
        while line := self._file.readline(MAX_LINE + 1):
            yield line.decode(errors="replace")


class Restore:
    """One restore into one ledger, which may be in use; after an interruption, run it again from the beginning.

    `tell` receives the number of tasks so far, now and then. `wait` is the number of replicas that must have each task.
    With `bad`, which receives each problem, the good lines of a file are restored; without it nothing of a bad file is.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        wait: int,
        tell: Callable[[int], object],
        bad: Callable[[str], object] | None = None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._wait = wait
        self._tell = tell
        self._told_bad = bad
        members = on_record(Scripts(client, None).command("SMEMBERS", shards_key(namespace)))
        self._counts = {shard.queue: count for shard, count in members}
        self._verbs = self._at_these_counts()

    def run(self, texts: Iterable[str]) -> Restored:
        """Add all tasks of the lines that the ledger lacks; the lines are read twice.

        Raises InvalidInput, which names the bad lines, StoreMisused and StoreUnavailable.
        """
        if not self._told_bad:
            found = (problem for _, error in self._read(texts) if error for problem in error.problems)
            if problems := list(islice(found, MOST_PROBLEMS)):
                raise InvalidInput(problems)
        added = seen = 0
        self._bad = 0
        for tasks in cut(self._tasks(texts), _size, most=BATCH, max_bytes=MAX_PIECE_BYTES):
            added += self._add(tasks)
            seen += len(tasks)
            self._tell(seen)
        return Restored(added, seen - added, self._bad)

    def _tasks(self, texts: Iterable[str]) -> Iterator[TaskLine]:
        """The tasks of the lines; what the other lines say is done on the way."""
        for line, error in self._read(texts):
            if error:
                self._leave_out(error)
            match line:
                case QueueLine():
                    self._make(line)
                case KeyLine():
                    self._keep(line)
                case FileLine():
                    self._note(line)
                case TaskLine():
                    yield line

    def _leave_out(self, error: InvalidInput) -> None:
        if not self._told_bad:
            raise error  # the file is another one by now
        self._bad += 1
        self._told_bad(str(error))

    def _read(self, texts: Iterable[str]) -> Iterator[tuple[Given | None, InvalidInput | None]]:
        """Each line, or why it is bad, and at last whether the end is missing."""
        course = _Course(self._namespace)
        for number, text in enumerate(texts, 1):
            try:
                yield course.checked(number, text), None
            except InvalidInput as error:
                course.bad += 1
                yield None, error
        if not course.is_whole:
            problem = f"is missing: the export was cut off after {course.tasks} tasks"
            yield None, InvalidInput([FieldError("the last line", problem)])

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
        """Keep a data key; the one that seals now stays the one."""
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


class _Course:
    """State of one look through a file: its head, its tasks so far, and its end."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._made_in = ""
        self.tasks = self.bad = 0
        self.is_whole = False

    def checked(self, number: int, text: str) -> Given:
        """One line. Raises InvalidInput where it is bad, by itself or behind the lines before it."""
        line = parse(number, text)
        if isinstance(line, Head) != (number == 1):
            raise wrong(number, "must be the head of an export, and no other line may")
        if self.is_whole:
            raise wrong(number, "comes after the end of the export")
        match line:
            case Head():
                self._made_in = line.namespace
            case KeyLine() if self._made_in != self._namespace:
                how = f": give --namespace {self._made_in}" if self._made_in else ""
                raise wrong(number, f"has a seal, which opens in the namespace of the export alone{how}")
            case TaskLine():
                self.tasks += 1
            case End():
                self.is_whole = True
                # A bad line may be a task.
                if not self.tasks <= line.tasks <= self.tasks + self.bad:
                    raise wrong(number, f"says that the export has {line.tasks} tasks: there are {self.tasks}")
        return line


def _size(line: TaskLine) -> int:
    return len(line.record) + len(line.payload)
