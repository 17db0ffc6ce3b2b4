"""Redis commands and scripts in this process: one at a time, each done as a whole or not at all."""

import hashlib
import os
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from redis.exceptions import NoScriptError, ResponseError

from duecourse.adapters.embedded.commands import Commands, Reply, number
from duecourse.adapters.embedded.keyspace import Keyspace, Place
from duecourse.adapters.embedded.lua import Lua, ScriptFailed
from duecourse.errors import StoreInUse
from duecourse.ports.clock import Clock

if TYPE_CHECKING:
    from duecourse.adapters.embedded.leveldb import LevelDisk

Argument = str | bytes | int | float
SCRIPTS = (b"EVAL", b"EVALSHA", b"EVAL_RO", b"EVALSHA_RO")


class Server:
    """Commands on one keyspace; `listeners` receive each published message, on the thread that published it."""

    def __init__(self, clock: Clock, disk: "LevelDisk | None" = None) -> None:
        """Raises as `disk.load`."""
        self.listeners: set[Callable[[bytes, bytes], None]] = set()
        self._lock = Lock()
        self._pid = os.getpid()
        self._space = Keyspace()
        self._disk = disk
        self._unsure: dict[Place, bytes | float | None] = {}
        """Places that the disk may have otherwise since a write failed, with their values here, for the next write."""
        self._messages: list[tuple[bytes, bytes]] = []
        self._commands = Commands(self._space, clock, lambda *message: self._messages.append(message))
        self._lua = Lua(self._commands)
        if disk:
            disk.load(self._space)
            self._space.keep()

    def run(self, command: Sequence[Argument]) -> Reply:
        """Answer of one command or script.

        Raises ResponseError, StoreInUse in a forked child, or the error of the disk; then nothing has changed.
        """
        self._check_process()
        name, *arguments = [
            one if isinstance(one, bytes) else one.encode() if isinstance(one, str) else number(one) for one in command
        ]
        with self._lock:
            if self._disk:
                self._disk.check()
            try:
                reply = self._script(name, arguments) if name in SCRIPTS else self._commands.by_name[name](*arguments)
                self._save()
            except BaseException as error:
                self._space.undo()
                self._messages.clear()
                if isinstance(error, (KeyError, TypeError, ValueError, ScriptFailed)):
                    raise ResponseError(f"{name.decode()}: {error}") from error
                raise
            self._deliver()
        return reply

    def _check_process(self) -> None:
        """Return if this is the process that opened the ledger.

        A child's copy would take in tasks that nobody else sees, and two would write to the disk.
        """
        if self._pid != os.getpid():
            raise StoreInUse(
                f"The ledger is open in process {self._pid}, which forked this one, and only one process can have it: "
                "use it there, or give DUECOURSE_STORE a Redis"
            )

    def close(self) -> None:
        """Close the disk."""
        if self._disk:
            self._disk.close()

    def _script(self, name: bytes, arguments: Sequence[bytes]) -> Reply:
        text, count, *every = arguments
        by_sha = name.startswith(b"EVALSHA")
        sha = text.decode() if by_sha else hashlib.sha1(text, usedforsecurity=False).hexdigest()
        if not self._lua.has(sha):
            if by_sha:
                raise NoScriptError("No matching script")
            self._lua.load(sha, text)
        reply = self._lua.run(sha, every[: int(count)], every[int(count) :])
        if name.endswith(b"_RO") and self._space.written():
            raise ResponseError("Write commands are not allowed from read-only scripts")
        return reply

    def _save(self) -> None:
        if self._disk and (writes := self._space.written()):
            try:
                self._disk.save(self._unsure | writes)
            except BaseException:
                # The disk may have it all the same: the next write must put that right.
                self._unsure |= self._space.before()
                raise
            self._unsure.clear()
        self._space.keep()

    def _deliver(self) -> None:
        while self._messages:
            message = self._messages.pop(0)
            for heard in list(self.listeners):  # a copy: a listener may come or go meanwhile
                heard(*message)
