"""The sides of a comparison: how each adds and works, at which settings, and how many tasks it has left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import redis

from duecourse.ledger.keys import keys_of
from duecourse.ledger.task import Shard
from tests.bench.figures import HOUR_MS, PAYLOAD
from tests.bench.peers.installed import Lacking, bullmq, python
from tests.bench.stage import Say
from tests.support.project import ROOT
from tests.support.redis_server import tie
from tests.support.wait import until

Settings = tuple[str, ...]
"""Options of a worker's command."""
OURS, LIMIT = "duecourse", "no-op EVALSHA"
OWN = keys_of("duecourse", Shard())


@dataclass(frozen=True, slots=True)
class Side:
    """One library: its program, the settings that its documents give for throughput, and for precision.

    `left` are the commands that count the tasks that are not settled. `most` is how many it is filled with in a time
    that one waits for; `waits_in` is the
    list from which a worker fetches every task, due or not, to keep it in memory.
    """

    name: str
    program: tuple[str, ...]
    drains: Mapping[str, Settings]
    precise: tuple[str, Settings]
    crowd: Settings
    left: Sequence[tuple[str, str]]
    has_batches: bool = True
    most: int = 100_000
    waits_in: str = ""

    @property
    def usual(self) -> str:
        """The name of the settings that it has by default."""
        return next(iter(self.drains))

    def count_left(self, client: redis.Redis) -> int:
        """Number of tasks that wait or run."""
        pipe = client.pipeline(transaction=True)
        for command, key in self.left:
            pipe.execute_command(command, key)  # type: ignore[no-untyped-call]
        return sum(map(int, pipe.execute()))


def sides(say: Say, only: Sequence[str] | None = None) -> Iterator[Side]:
    """Those that can be had here, ours first."""
    makers: Mapping[str, Callable[[], Side]] = {
        OURS: _ours,
        "BullMQ": lambda: _bullmq(bullmq(say)),
        "docket": lambda: _docket(python(say, "pydocket", "docket_peer")),
        "arq": lambda: _arq(python(say, "arq", "arq_peer")),
        "Celery": lambda: _celery(python(say, "celery", "celery_peer")),
    }
    for name, make in makers.items():
        if name == OURS or only is None or name in only:
            try:
                yield make()
            except Lacking as lacking:
                say(f"{name} is left out: {lacking}")


def _here(module: str) -> tuple[str, ...]:
    return (sys.executable, "-m", f"{__package__}.{module}")


def limit() -> Side:
    """An empty script by redis-py, which adds nothing."""
    return Side(LIMIT, _here("no_op"), {}, ("", ()), (), (), has_batches=False)


def _ours() -> Side:
    crowd = ("--concurrency", "100")
    return Side(
        OURS,
        _here("ours"),
        drains={"defaults": (), "100 at a time": crowd},
        precise=("defaults", ()),
        crowd=crowd,
        left=[("ZCARD", OWN.due("-")), ("ZCARD", OWN.leased)],
    )


def _bullmq(program: tuple[str, ...]) -> Side:
    key = "bull:bench"
    return Side(
        "BullMQ",
        program,
        drains={f"{count} at a time": (str(count),) for count in (1, 16, 100)},
        precise=("16 at a time", ("16",)),
        crowd=("100",),
        left=[("LLEN", f"{key}:wait"), ("LLEN", f"{key}:active"), ("ZCARD", f"{key}:delayed")],
    )


def _docket(program: tuple[str, ...]) -> Side:
    return Side(
        "docket",
        program,
        drains={"10 at a time": ("10", "250"), "100 at a time, looks each 5 ms": ("100", "5")},
        precise=("looks each 5 ms", ("10", "5")),
        crowd=("100", "250"),
        left=[("XLEN", "bench:stream"), ("ZCARD", "bench:queue")],
    )


def _arq(program: tuple[str, ...]) -> Side:
    return Side(
        "arq",
        program,
        drains={"10 at a time": ("10", "500"), "100 at a time, looks each 5 ms": ("100", "5")},
        precise=("looks each 5 ms", ("10", "5")),
        crowd=("100", "500"),
        left=[("ZCARD", "arq:queue")],
        has_batches=False,
        most=20_000,
    )


def _celery(program: tuple[str, ...]) -> Side:
    threads = ("--pool=threads", "--concurrency=16")
    return Side(
        "Celery",
        program,
        drains={"a process each processor": (), "16 threads, fetches 64 each": (*threads, "--prefetch-multiplier=64")},
        precise=("16 threads", threads),
        crowd=("--lease-of-30-s", "--pool=threads", "--concurrency=100", "--prefetch-multiplier=1"),
        left=[("LLEN", "celery"), ("HLEN", "unacked")],
        has_batches=False,
        most=20_000,
        waits_in="celery",
    )


class Adder:
    """A process that adds when it is asked to, and answers how long that took."""

    def __init__(self, said: Callable[[], str], process: "subprocess.Popen[str]") -> None:
        self._said = said
        self._process = process

    def add(self, work: str, count: int, *given: object) -> float:
        """Seconds that the work took; `turns` describes the works."""
        assert self._process.stdin
        self._process.stdin.write(f"{' '.join(map(str, (work, count, *given)))}\n")
        self._process.stdin.flush()
        return float(self._said())


class Arena:
    """A side's processes on one server: `url` is how they reach it, `client` the direct way of who measures."""

    def __init__(self, side: Side, url: str, client: redis.Redis, folder: Path) -> None:
        self.side = side
        self._url = url
        self._client = client
        self.notes, self.hold, self.errors = folder / "notes", folder / "hold", folder / "errors"

    def clear(self) -> None:
        """Begin with nothing stored."""
        self._client.flushall()
        self.notes.write_bytes(b"")
        self.errors.write_bytes(b"")

    def until_noted(self, count: int, seconds: float = 120) -> None:
        """Wait until handlers wrote so many lines."""
        try:
            until(lambda: len(self.noted()) >= count, seconds=seconds, every=0.05)
        except AssertionError as late:
            problem = f"{self.side.name}: {len(self.noted())} of {count} tasks began within {seconds:g} s"
            raise AssertionError(f"{problem}. {self.errors.read_text()[-500:]}") from late

    def noted(self) -> list[str]:
        """Lines that handlers wrote."""
        return self.notes.read_text().splitlines()

    def left(self) -> int:
        """Number of tasks that wait or run."""
        return self.side.count_left(self._client)

    def until_fetched(self) -> None:
        """Wait until a worker that fetches every task has done so."""
        if self.side.waits_in:
            until(lambda: not self._client.llen(self.side.waits_in), seconds=120, every=0.1)

    @contextmanager
    def adding(self) -> Iterator[Adder]:
        """A process that adds."""
        with self._started("add") as process:
            self._until_ready(process)
            yield Adder(partial(self._said, process), process)

    @contextmanager
    def working(self, settings: Settings, *, is_ready: bool = True) -> Iterator["subprocess.Popen[str]"]:
        """A worker; with `is_ready`, one that works by now."""
        with self._started("work", *settings) as process:
            if is_ready:
                self._until_ready(process)
            yield process

    def drain(self, tasks: int) -> float:
        """Wait while a worker that has just started works what waits: tasks a second, after a quarter for warming."""
        until(lambda: self.left() <= tasks * 3 / 4, seconds=120, every=0.002)
        left, began = self.left(), time.perf_counter()
        self.until_drained()
        return left / (time.perf_counter() - began)

    def until_drained(self, seconds: float = 120) -> None:
        """Wait until no task is left."""
        try:
            until(lambda: not self.left(), seconds=seconds, every=0.002)
        except AssertionError as late:
            raise AssertionError(f"{self.side.name}: {self.left()} tasks are left after {seconds:g} s") from late

    def _until_ready(self, process: "subprocess.Popen[str]") -> None:
        while not self._said(process).startswith(("ready", "worker ready")):
            pass

    def _said(self, process: "subprocess.Popen[str]") -> str:
        assert process.stdout
        if not (line := process.stdout.readline()):
            problem = self.errors.read_text()[-1_000:]
            raise SystemExit(f"{self.side.name} ended with status {process.wait()}: {problem}")
        return line.strip()

    @contextmanager
    def _started(self, role: str, *settings: str) -> Iterator["subprocess.Popen[str]"]:
        given: Mapping[str, Any] = {
            "PAYLOAD": PAYLOAD,
            "DELAY_MS": str(HOUR_MS),
            "NOTES": str(self.notes),
            "HOLD": str(self.hold),
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "layers" / "core"))),
        }
        with (
            self.errors.open("ab") as errors,
            subprocess.Popen(
                [*tie(), *self.side.program, role, self._url, *settings],
                cwd=ROOT,
                env={**os.environ, **given},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # so that a worker's own children are killed with it
            ) as process,
        ):
            try:
                yield process
            finally:
                kill(process)


def kill(process: "subprocess.Popen[str]") -> None:
    """Kill -9 a process with its children."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
