"""Warming: functions that were idle are invoked with no tasks, some seconds before there are some."""

import logging
import time
from collections.abc import Mapping, Sequence
from math import inf

from duecourse.domain.task import Json, Shard
from duecourse.errors import InvocationRejected, StoreMisused, StoreUnavailable
from duecourse.ports.invoker import Invoker, Send
from duecourse.ports.warmth import Warmth
from duecourse.wire.events.invocation import tasks_event

log = logging.getLogger("duecourse.engine")

LAMBDA = "lambda:"
NOTES = 5
"""Number of notes about a function in use within the length of an idle spell."""


class Warmer:
    """Warms the functions that work the kinds which come due next in some shards, each once a spell.

    `targets` are kinds' targets by name. A spell is `idle_ms` without an invocation from anywhere, and tasks that come
    due `within_ms` count.
    """

    def __init__(
        self, warmth: Warmth, invoker: Invoker, targets: Mapping[str, str], *, within_ms: int, idle_ms: int
    ) -> None:
        self._warmth = warmth
        self._invoker = invoker
        self._functions = {
            kind: target.removeprefix(LAMBDA) for kind, target in targets.items() if target.startswith(LAMBDA)
        }
        self._within_ms = within_ms
        self._idle_ms = idle_ms

    def warm(self, shards: Sequence[Shard]) -> list[str]:
        """Send each idle function an event without tasks; answers their names.

        A shard that is away is left out: others do not wait for it. Raises StoreUnavailable.
        """
        if not self._functions:
            return []
        self._prepare()
        kinds = [kind for shard in shards for kind in self._coming(shard)]
        functions = sorted({self._functions[kind] for kind in kinds if kind in self._functions})
        idle = self._warmth.idle(functions, self._idle_ms) if functions else []
        return [function for function in idle if self._send(function)]

    def _prepare(self) -> None:
        """A process that hands over is not warm before its client is made."""
        try:
            self._invoker.prepare()
        except InvocationRejected as error:
            log.warning("no function can be invoked: %s", error)

    def _coming(self, shard: Shard) -> list[str]:
        try:
            return self._warmth.coming(shard, self._within_ms)
        except (StoreUnavailable, StoreMisused) as error:
            log.warning("the functions for shard %s are not warmed: %s", shard, error)
            return []

    def _send(self, function: str) -> bool:
        try:
            self._invoker.send(function, tasks_event([]))
        except InvocationRejected as error:
            log.warning("function %s is not warmed: %s", function, error)
            return False
        return True


class Noting:
    """Sends events and notes which functions are in use, so that none is warmed; seldom enough to cost nothing."""

    def __init__(self, send: Send, warmth: Warmth, idle_ms: int) -> None:
        self._send = send
        self._warmth = warmth
        self._idle_ms = idle_ms
        self._noted_at: dict[str, float] = {}

    def send(self, function: str, event: Json) -> None:
        """See Invoker."""
        self._send(function, event)
        self._note(function)

    def _note(self, function: str) -> None:
        now = time.monotonic()
        if now < self._noted_at.get(function, -inf) + self._idle_ms / 1000 / NOTES:
            return
        self._noted_at[function] = now
        try:
            self._warmth.idle([function], self._idle_ms)
        except (StoreUnavailable, StoreMisused) as error:
            log.warning("use of function %s could not be recorded: %s", function, error)
