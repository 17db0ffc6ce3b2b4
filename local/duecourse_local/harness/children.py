"""Child processes that never outlive the harness, and the pipes that their output comes through."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

DIE_WITH_PARENT = str(Path(__file__).with_name("die_with_parent.py"))
CHUNK = 65_536


async def spawn(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    out: int,
    err: int | None = None,
    folder: Path | None = None,
    keeps: Sequence[int] = (),
) -> Process:
    """Start `command` in a session of its own (Ctrl-C is the harness's), output to the given file descriptors.

    The child inherits only the descriptors that it `keeps`. It dies with the thread that calls this, for the kernel
    ties a child to its parent *thread*.
    """
    wrapped = (sys.executable, "-I", "-S", DIE_WITH_PARENT, str(os.getpid()), *command)
    return await asyncio.create_subprocess_exec(
        *wrapped,
        stdin=DEVNULL,
        stdout=out,
        stderr=out if err is None else err,
        cwd=folder,
        env=dict(environment),
        start_new_session=True,
        pass_fds=keeps,
    )


async def stop(process: Process, grace: float = 5.0) -> None:
    """End `process`: SIGTERM, and SIGKILL after `grace` seconds."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), grace)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Pipe:
    """A pipe of a child's output; `on_chunk` receives it as it comes."""

    def __init__(self, on_chunk: Callable[[bytes], None]) -> None:
        self._on_chunk = on_chunk
        self._reading, self.child_end = os.pipe()
        self._open = True
        os.set_blocking(self._reading, False)
        asyncio.get_running_loop().add_reader(self._reading, self.drain)

    def handed_over(self) -> None:
        """Close our copy of the child's end, once the child has its own."""
        os.close(self.child_end)

    def drain(self) -> None:
        """Read all output so far."""
        with suppress(BlockingIOError):
            while self._open:
                chunk = os.read(self._reading, CHUNK)
                if not chunk:
                    return self.close()
                self._on_chunk(chunk)
        return None

    def close(self) -> None:
        """Stop listening."""
        if self._open:
            self._open = False
            asyncio.get_running_loop().remove_reader(self._reading)
            os.close(self._reading)
