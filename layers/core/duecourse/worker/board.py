"""Board of a worker's process: leases that it has, in memory that it shares with its parent and that outlives it."""

import json
import mmap
import os
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Self

from duecourse.domain.task import Task
from duecourse.engine.bereft import Held, State

SLOTS = 1_024
"""The most leases that are shown: what a process runs, 256 tasks at most, and some that wait or have ended."""
SLOT = 1_024
"""Bytes of one task: the longest names fit, and some."""
LENGTH = 2
STATE = 1
HEADER = 4


class Board:
    """A file in memory: the number of shards that the process leaves out, and the leases that it has.

    A lease is shown from its claim until its end is settled, while there is room. The process writes and its parent
    reads. That costs no system call, and what a killed process wrote stays.
    """

    def __init__(self, file: int) -> None:
        self.file = file
        self._memory = mmap.mmap(file, HEADER + SLOTS * SLOT)
        self._free = deque(range(SLOTS))
        self._places: dict[str, int] = {}
        """Place of the lease with a token, in bytes."""

    @classmethod
    def make(cls) -> Self:
        """A board with nothing on it; its file has no name."""
        file = os.memfd_create("duecourse-worker") if hasattr(os, "memfd_create") else _temporary()
        os.truncate(file, HEADER + SLOTS * SLOT)
        return cls(file)

    def close(self) -> None:
        """Close the file; the memory goes with this object, which another thread may look at still."""
        os.close(self.file)

    @property
    def left_out(self) -> int:
        """Number of shards that the process leaves out."""
        return int.from_bytes(self._memory[:HEADER])

    @left_out.setter
    def left_out(self, count: int) -> None:
        self._memory[:HEADER] = count.to_bytes(HEADER)

    def hold(self, tasks: Iterable[Task]) -> None:
        """Show the leases of tasks that were claimed."""
        for task in tasks:
            with suppress(IndexError):  # no room
                at = self._free.popleft() * SLOT + HEADER
                text = json.dumps([task.queue, task.id, task.tenant, task.group, task.token]).encode()
                begin = at + LENGTH + STATE
                self._memory[begin - STATE] = State.WAITS
                self._memory[begin : begin + len(text)] = text
                self._memory[at : at + LENGTH] = len(text).to_bytes(LENGTH)  # last: until then nothing is shown
                self._places[task.token] = at

    def drop(self, tokens: Iterable[str]) -> None:
        """Show these leases no longer."""
        for token in tokens:
            if (at := self._places.pop(token, None)) is not None:
                self._memory[at : at + LENGTH] = bytes(LENGTH)
                self._free.append((at - HEADER) // SLOT)

    @contextmanager
    def running(self, task: Task, *, apart: bool = False) -> Iterator[None]:
        """Show that a task runs meanwhile."""
        self._mark(task.token, State.APART if apart else State.RUNS)
        try:
            yield
        finally:
            self._mark(task.token, State.ENDED)

    def _mark(self, token: str, state: State) -> None:
        if (at := self._places.get(token)) is not None:
            self._memory[at + LENGTH] = state

    def held(self) -> list[Held]:
        """The leases that are shown."""
        return list(self._shown())

    def _shown(self) -> Iterator[Held]:
        for at in range(HEADER, HEADER + SLOTS * SLOT, SLOT):
            if length := int.from_bytes(self._memory[at : at + LENGTH]):
                begin = at + LENGTH + STATE
                queue, id, tenant, group, token = json.loads(self._memory[begin : begin + length])
                yield Held(queue, id, tenant, group, token, State(self._memory[begin - STATE]))


def _temporary() -> int:
    with tempfile.TemporaryFile() as made:
        return os.dup(made.fileno())
