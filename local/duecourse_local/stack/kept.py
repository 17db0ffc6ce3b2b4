"""Secrets of this machine alone: made at their first use, and kept in files that only their owner may read."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path


def kept(path: Path, make: Callable[[], bytes]) -> bytes:
    """The content of a file, which `make` makes where there is none."""
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(make())
        try:
            os.link(made, path)  # of two processes that make one at once, the first one's stays
        except FileExistsError:
            pass
        finally:
            made.unlink()
    return path.read_bytes()
