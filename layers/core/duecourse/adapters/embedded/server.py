"""Redis commands and scripts in this process: one at a time, each done as a whole or not at all."""

import hashlib
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from redis.exceptions import NoScriptError, ResponseError

from duecourse.adapters.embedded.commands import Commands, Reply, number
from duecourse.adapters.embedded.keyspace import Keyspace, Place
from duecourse.adapters.embedded.lua import Lua, ScriptFailed
from duecourse.ports.clock import Clock

if TYPE_CHECKING:
    from duecourse.adapters.embedded.leveldb import LevelDisk

Argument = str | bytes | int | float
SCRIPTS = (b"EVAL", b"EVALSHA", b"EVAL_RO", b"EVALSHA_RO")


class Server:
    """Commands on one keyspace; `heard` receives each published message, on the thread that published it."""

    def __init__(self, clock: Clock, disk: "LevelDisk | None" = None) -> None:
        """Raises as `disk.load`."""
        self.heard: Callable[[bytes, bytes], None] = lambda _channel, _message: None
        self._lock = Lock()
        self._space = Keyspace()
        self._disk = disk
        self._unsure: dict[Place, bytes | float | None] = {}
        """Places that the disk may have otherwise since a write failed, with their values here, for the next write."""
        self._told: list[tuple[bytes, bytes]] = []
        self._commands = Commands(self._space, clock, lambda *message: self._told.append(message))
        self._lua = Lua(self._commands)
        if disk:
            disk.load(self._space)
            self._space.keep()

    def run(self, command: Sequence[Argument]) -> Reply:
        """Answer of one command or script.

        Raises ResponseError, or the error of the disk; then nothing has changed.
        """
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
                self._told.clear()
                if isinstance(error, (KeyError, TypeError, ValueError, ScriptFailed)):
                    raise ResponseError(f"{name.decode()}: {error}") from error
                raise
            self._tell()
        return reply

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

    def _tell(self) -> None:
        while self._told:
            self.heard(*self._told.pop(0))
