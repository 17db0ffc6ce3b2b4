"""Crashes at each step of a reshard, or of any operation of a store, as of a killed process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from duecourse.ledger.connect import Client
from duecourse.ledger.maintenance import Reshard
from duecourse.ledger.operations.ledger import Ledger


class Crash(Exception):
    """The end of a process, as far as Redis can tell."""


class CrashingReshard(Reshard):
    """A reshard that ends before its n-th script, command or read: nothing is tidied up."""

    def cut_after(self, steps: int) -> "CrashingReshard":
        """Let it take so many steps."""
        scripts, call, left = self._scripts, self._scripts.call, steps

        def limited(command: Callable[[], Any], **how: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Crash
            return call(command, **how)

        scripts.call = limited  # type: ignore[method-assign]
        return self


def crashing_reshards(client: Client, to: int) -> Iterator[Callable[[], None]]:
    """Reshards of the default queue, each to be called: cut off one step later than the one before, then run again.

    The last one is not cut off.
    """
    steps, finished = 0, False

    def cut_off() -> None:
        nonlocal finished
        try:
            CrashingReshard(client, "duecourse", "default", to, lambda _: None).cut_after(steps).run(0)
            finished = True
        except Crash:
            Reshard(client, "duecourse", "default", to, lambda _: None).run(0)

    while not finished:
        yield cut_off
        steps += 1


@contextmanager
def cut_after(ledger: Ledger, steps: int, error: type[Exception] = Crash) -> Iterator[None]:
    """Let a store take so many scripts, commands and reads; each one after that is an error, and does nothing."""
    scripts, left = ledger._scripts, steps
    call = scripts.call

    def limited(command: Callable[[], Any], **how: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise error("cut off")
        return call(command, **how)

    scripts.call = limited  # type: ignore[method-assign]
    try:
        yield
    finally:
        scripts.call = call  # type: ignore[method-assign]
