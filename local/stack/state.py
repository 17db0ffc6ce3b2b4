"""The state folder: what outlives one `up`, and the lock that keeps two from sharing it."""

import fcntl
import json
from pathlib import Path
from typing import Any

from .options import TEMPLATE
from .problems import HarnessError

DEFAULT = TEMPLATE.parent / ".duecourse"


class StateFolder:
    """A folder that one stack at a time uses."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / "lock").open("ab")
        except OSError as error:
            raise HarnessError(f"{self.path} cannot be used ({error.strerror}): give another --state") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise HarnessError(f"another stack uses {self.path}: stop it, or give this one another --state") from None

    def announce(self, addresses: dict[str, Any]) -> None:
        """Leave the addresses for the other commands to find."""
        (self.path / "up.json").write_text(json.dumps(addresses))

    def close(self) -> None:
        """Give the folder up."""
        (self.path / "up.json").unlink(missing_ok=True)
        self._lock.close()


def running(path: Path) -> dict[str, Any] | None:
    """The addresses of the stack that uses the folder now, if one does."""
    announced = path / "up.json"
    if not announced.exists():
        return None
    try:
        StateFolder(path).close()
    except HarnessError:
        found: dict[str, Any] = json.loads(announced.read_text())
        return found
    return None
