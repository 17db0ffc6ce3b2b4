"""Board of a worker's process: what runs there, in memory that it shares with its parent and that outlives it."""

import json
import mmap
import os
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from duecourse.domain.task import Task
from duecourse.engine.bereft import Running

SLOTS = 256
"""The most tasks that a process runs at the same time."""
SLOT = 1_024
"""Bytes of one task: the longest names fit, and some."""
LENGTH = 2
HEADER = 4


class Board:
    """A file in memory: the number of shards that the process leaves out, and the lease of each task that it runs.

    The process writes and its parent reads. That costs no system call, and what a killed process wrote stays.
    """

    def __init__(self, file: int) -> None:
        self.file = file
        self._memory = mmap.mmap(file, HEADER + SLOTS * SLOT)
        self._free = deque(range(SLOTS))

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

    @contextmanager
    def showing(self, task: Task, *, apart: bool = False) -> Iterator[None]:
        """Show the task meanwhile."""
        slot = self._free.popleft()
        at = HEADER + slot * SLOT
        text = json.dumps([task.queue, task.id, task.tenant, task.group, task.token, apart]).encode()
        end = at + LENGTH + len(text)
        self._memory[at + LENGTH : end] = text
        self._memory[at : at + LENGTH] = len(text).to_bytes(LENGTH)  # last: until then nothing is shown
        try:
            yield
        finally:
            self._memory[at : at + LENGTH] = bytes(LENGTH)
            self._free.append(slot)

    def running(self) -> list[Running]:
        """The tasks that are shown."""
        return list(self._shown())

    def _shown(self) -> Iterator[Running]:
        for at in range(HEADER, HEADER + SLOTS * SLOT, SLOT):
            if length := int.from_bytes(self._memory[at : at + LENGTH]):
                yield Running(*json.loads(self._memory[at + LENGTH : at + LENGTH + length]))


def _temporary() -> int:
    with tempfile.TemporaryFile() as made:
        return os.dup(made.fileno())
