"""Restore of an export: tasks that the ledger lacks are added, existing ones stay."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from tempfile import TemporaryFile
from typing import BinaryIO, NamedTuple

from duecourse.app import App, Parts
from duecourse.base.batches import cut, grouped
from duecourse.base.times import Clock
from duecourse.errors import FieldError, InvalidInput
from duecourse.ledger.connect import Client
from duecourse.ledger.keys import parse_shards, seals_key, shards_key
from duecourse.ledger.maintenance import BATCH
from duecourse.ledger.operations.base import ScriptRunner
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.operations.namespace_records import CURRENT, FileRecord
from duecourse.ledger.schedule import Entry
from duecourse.ledger.script_calls import Scripts
from duecourse.ledger.script_codec import MAX_PIECE_BYTES
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Shard
from duecourse.settings import Settings

from .format import MAX_LINE, End, FileLine, Given, Head, HistoryLine, KeyLine, QueueLine, TaskLine, parse, wrong
from .former_reminders import Contents, is_content

MOST_PROBLEMS = 20
"""Most problems of a bad file that are named."""


class Restored(NamedTuple):
    """Number of tasks that were added, of those that were there already, and of bad lines."""

    added: int
    existing: int
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

    `progress` receives the number of tasks so far, now and then. `wait` is the number of replicas that must have each
    task. With `bad`, which receives each problem, the good lines of a file are restored; without it nothing is.
    `seal_key` is DUECOURSE_SEAL_KEY, for an export whose reminders have their contents apart.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        wait: int,
        progress: Callable[[int], object],
        bad: Callable[[str], object] | None = None,
        clock: Clock | None = None,
        seal_key: str = "",
    ) -> None:
        """`clock` is in place of the server's, for a ledger in this process."""
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._wait = wait
        self._progress = progress
        self._report_bad = bad
        members = parse_shards(Scripts(client, clock).command("SMEMBERS", shards_key(namespace)))
        self._counts = {shard.queue: count for shard, count in members}
        self._runner = self._make_runner()
        ledger = Ledger(client, namespace, sharding=Sharding(self._counts), travel=clock, wait=wait)
        seals = App(Settings(namespace=namespace, seal_key=seal_key), Parts(ledger=ledger)).seals
        self._contents = Contents(seals)

    def run(self, texts: Iterable[str]) -> Restored:
        """Add all tasks of the lines that the ledger lacks; the lines are read twice.

        Raises InvalidInput, which names the bad lines, StoreMisused and StoreUnavailable.
        """
        self._look(texts)
        added = seen = 0
        self._bad = 0
        for tasks in cut(self._tasks(texts), _size, most=BATCH, max_bytes=MAX_PIECE_BYTES):
            added += self._add(tasks)
            seen += len(tasks)
            self._progress(seen)
        return Restored(added, seen - added, self._bad)

    def _look(self, texts: Iterable[str]) -> None:
        """Gather the contents of reminders. Raises InvalidInput, unless the good lines of a bad file are wanted."""
        problems = list[FieldError]()
        for line, error in self._read(texts):
            if isinstance(line, TaskLine):
                self._contents.gather(line)
            if error and not self._report_bad:
                problems += error.problems
            if len(problems) >= MOST_PROBLEMS:
                break
        problems += self._contents.problems()
        if problems and not self._report_bad:
            raise InvalidInput(problems[:MOST_PROBLEMS])

    def _tasks(self, texts: Iterable[str]) -> Iterator[TaskLine]:
        """The tasks of the lines; queues, keys and files of the other lines are restored on the way."""
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
                case HistoryLine():
                    self._remember(line)
                case TaskLine() if not is_content(line):
                    yield from self._with_content(line)

    def _with_content(self, line: TaskLine) -> Iterator[TaskLine]:
        try:
            yield self._contents.with_content(line)
        except InvalidInput as error:
            self._leave_out(error)

    def _leave_out(self, error: InvalidInput) -> None:
        if not self._report_bad:
            raise error  # the file is another one by now
        self._bad += 1
        self._report_bad(str(error))

    def _read(self, texts: Iterable[str]) -> Iterator[tuple[Given | None, InvalidInput | None]]:
        """Each line, or why it is bad, and at last whether the end is missing."""
        check = _FileCheck(self._namespace)
        for number, text in enumerate(texts, 1):
            try:
                yield check.checked(number, text), None
            except InvalidInput as error:
                check.bad += 1
                yield None, error
        if not check.is_whole:
            problem = f"is missing: the export was cut off after {check.tasks} tasks"
            yield None, InvalidInput([FieldError("the last line", problem)])

    def _make(self, queue: QueueLine) -> None:
        """Make a queue as it was; one that is there stays as it is, in settings and number of shards."""
        if queue.name in self._counts:
            return
        self._counts[queue.name] = queue.shards
        self._runner = self._make_runner()
        if changes := queue.settings.changes():
            counts = Sharding(self._counts)
            ledger = Ledger(self._client, self._namespace, sharding=counts, wait=self._wait, travel=self._clock)
            ledger.configure(queue.name, changes)

    def _keep(self, key: KeyLine) -> None:
        """Store a data key; the current sealing key stays current."""
        keys, scripts = seals_key(self._namespace), self._runner.scripts
        scripts.command("HSETNX", keys, key.id, key.wrapped)
        if key.seals:
            scripts.command("HSETNX", keys, CURRENT, key.id)

    def _note(self, file: FileLine) -> None:
        """Note a file of schedules as it was, unless one with a higher number is there."""
        record = FileRecord(self._runner.scripts, self._namespace)
        record.begin(file.number, file.digest, [Entry(*one) for one in file.entries])
        if file.applied:
            record.finish(file.number)

    def _remember(self, line: HistoryLine) -> None:
        """Store numbers over time where the shard has none yet; of a shard that the queue does not have, leave out."""
        shard = Shard(line.queue, line.shard)
        if shard not in self._runner.sharding.every(line.queue):
            return
        self._runner.registry.keep(shard)
        keys, scripts = self._runner.keys(shard), self._runner.scripts
        for field, text in line.lines.items():
            scripts.command("HSETNX", keys.history, field, text)
        if line.numbers:
            scripts.command("HSETNX", keys.meta, "numbers", line.numbers)

    def _add(self, lines: Sequence[TaskLine]) -> int:
        """Number of the tasks that were added."""
        return sum(self._put(shard, own) for shard, own in grouped(lines, self._home).items())

    def _put(self, shard: Shard, lines: Sequence[TaskLine]) -> int:
        self._runner.registry.keep(shard)
        tenants = list(dict.fromkeys(line.id.partition("/")[0] for line in lines))
        every = [part for line in lines for part in (line.id, line.when, line.record, line.payload)]
        return int(self._runner.run("take_in", shard, tenants, (1, *every))[2])

    def _home(self, line: TaskLine) -> Shard:
        task = line.task()
        return self._runner.sharding.of(line.queue, task.id, task.group)

    def _make_runner(self) -> ScriptRunner:
        return ScriptRunner(self._client, self._namespace, Sharding(self._counts), self._clock, self._wait)


class _FileCheck:
    """Checks of one read of a file: its head, its tasks so far, and its end."""

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
