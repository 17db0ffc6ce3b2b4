"""The state folder: what outlives one `up`, and the lock that keeps two from sharing it."""

import fcntl
import json
import os
import stat
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import HarnessError
from ..project.place import here

DEFAULT = here().state
ADDRESSES = "up.json"
SEAL_KEY = "seal.key"
LOOK_S = 0.02


class FolderInUse(HarnessError):
    """Another stack uses the folder."""


class StateFolder:
    """A folder that one stack at a time uses; `patience_s` is the longest wait for it.

    Others have it for a moment: a command that looks for a stack, or the children of one that was killed.
    """

    def __init__(self, path: Path, patience_s: float = 0.0) -> None:
        self.path = path.resolve()
        try:
            self.path.mkdir(0o700, parents=True, exist_ok=True)
            _make_private(self.path)
            self._lock = (self.path / "lock").open("ab")
        except OSError as error:
            raise HarnessError(f"{self.path} cannot be used ({error.strerror}): give another --state") from None
        until = time.monotonic() + patience_s
        while not self._is_ours():
            if time.monotonic() >= until:
                self._lock.close()
                raise FolderInUse(
                    f"another stack uses {self.path}, or the redis-server of one that was killed: "
                    "stop it, or give this one another --state"
                )
            time.sleep(LOOK_S)
        self._forget()  # a stack that was killed has left its addresses

    @property
    def lock(self) -> int:
        """File descriptor of the lock: a child that gets it keeps the folder, even if it outlives this process."""
        return self._lock.fileno()

    def announce(self, addresses: dict[str, Any]) -> None:
        """Write the addresses for the other commands; the URL of the store has its password in it."""
        written = self.path / f"{ADDRESSES}.new"
        written.unlink(missing_ok=True)  # else it would keep the mode that it was made with
        with open(written, "x", opener=partial(os.open, mode=0o600)) as file:
            file.write(json.dumps(addresses))
        written.replace(self.path / ADDRESSES)  # at once: a command may be reading

    def make_seal_key(self) -> str:
        """The setting of the local key that seals credentials; the first stack in the folder makes the key."""
        path = self.path / SEAL_KEY
        if not path.exists():
            made = self.path / f"{SEAL_KEY}.new"
            made.unlink(missing_ok=True)
            with open(made, "xb", opener=partial(os.open, mode=0o600)) as file:
                file.write(os.urandom(32))
            made.replace(path)
        return seal_key(self.path)

    def close(self) -> None:
        """Release the folder."""
        self._forget()
        self._lock.close()

    def _is_ours(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _forget(self) -> None:
        (self.path / ADDRESSES).unlink(missing_ok=True)


def _make_private(path: Path) -> None:
    """Close the folder to all but its owner: Redis's data, the logs and the addresses are all in it.

    Raises HarnessError for a folder that many share, such as /tmp: closed, it would fail all of them.
    """
    mode = path.stat().st_mode
    if mode & stat.S_ISVTX:
        raise HarnessError(f"{path} is shared with others, who could read the tasks: give another --state")
    if stat.S_IMODE(mode) & 0o077:
        path.chmod(0o700)


def seal_key(path: Path) -> str:
    """The setting of a folder's local key; "" for a folder without one."""
    key = path.resolve() / SEAL_KEY
    return f"file://{key}" if os.path.exists(key) else ""


def running(path: Path) -> dict[str, Any] | None:
    """The addresses of the stack that uses the folder now, if one does."""
    announced = path / ADDRESSES
    if not os.path.exists(announced):  # Path.exists would raise for a folder that is another user's
        return None
    try:
        StateFolder(path).close()
    except FolderInUse:
        with suppress(FileNotFoundError):  # it has just ended, or another is only starting
            found: dict[str, Any] = json.loads(announced.read_text())
            return found
    return None
