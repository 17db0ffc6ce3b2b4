"""What is cut off at one step after another, as a killed process would be: reshards, and any verb of a store."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from duecourse.adapters.redis.connect import Client
from duecourse.adapters.redis.reshard import Reshard
from duecourse.adapters.redis.store import RedisStore


class Cut(Exception):
    """The end of a process, as far as Redis can tell."""


class CutShort(Reshard):
    """A reshard that ends before its n-th script, command or read: nothing is tidied up."""

    def cut_after(self, steps: int) -> "CutShort":
        """Let it take so many steps."""
        scripts, call, left = self._scripts, self._scripts.call, steps

        def limited(command: Callable[[], Any], **how: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Cut
            return call(command, **how)

        scripts.call = limited  # type: ignore[method-assign]
        return self


def reshards_cut_short(client: Client, to: int) -> Iterator[Callable[[], None]]:
    """Reshards of the default queue, each to be called: cut off one step later than the one before, then run again.

    The last one is not cut off.
    """
    steps, finished = 0, False

    def cut_off() -> None:
        nonlocal finished
        try:
            CutShort(client, "duecourse", "default", to, lambda _: None).cut_after(steps).run(0)
            finished = True
        except Cut:
            Reshard(client, "duecourse", "default", to, lambda _: None).run(0)

    while not finished:
        yield cut_off
        steps += 1


@contextmanager
def cut_after(store: RedisStore, steps: int, error: type[Exception] = Cut) -> Iterator[None]:
    """Let a store take so many scripts, commands and reads; each one after that is an error, and does nothing."""
    scripts, left = store._scripts, steps
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
