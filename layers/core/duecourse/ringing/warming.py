"""Warming: idle functions are invoked with no tasks, some seconds before there are some."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from duecourse.base.json_text import Json
from duecourse.errors import InvocationRejected, StoreMisused, StoreUnavailable
from duecourse.ledger.task import Shard
from duecourse.ringing.dispatch import daemon
from duecourse.running.task_event import Invoker, Send, tasks_event

if TYPE_CHECKING:
    from duecourse.ledger.operations.namespace_records import Warmth
    from duecourse.ringing.sessions import Sessions

Warm = Callable[[Sequence[str]], Json]
"""Has the functions warmed that will work what these bells ring for.

May raise InvocationRejected or StoreUnavailable.
"""


@dataclass(frozen=True, slots=True)
class Warming:
    """Warming of functions: the call, its lead before a bell, and the length of an idle spell (ms).

    `last` is when each bell rang or was warmed for (the server's epoch ms): one that is kept outlives a bridge.
    """

    warm: Warm
    ahead_ms: int
    idle_ms: int
    last: dict[str, float] = field(default_factory=dict)


log = logging.getLogger("duecourse.ringing")

LAMBDA = "lambda:"
NOTES = 5
"""Number of notes about a function in use within the length of an idle spell."""


class Warmer:
    """Warms the functions of the kinds that come due next in some shards, each once an idle spell.

    `targets` are kinds' targets by name. A spell is `idle_ms` without an invocation from anywhere, and tasks that come
    due `within_ms` count.
    """

    def __init__(
        self, warmth: "Warmth", invoker: Invoker, targets: Mapping[str, str], *, within_ms: int, idle_ms: int
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
        """Make the client of this process too, so that its first invocation is not slow."""
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


class UsageRecorder:
    """Sends events and records which functions are in use, so that none of them is warmed."""

    def __init__(self, send: Send, warmth: "Warmth", idle_ms: int) -> None:
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


# Warming by the bridge, some seconds before a bell that follows an idle spell.

bridge_log = logging.getLogger("duecourse.bridge")

LOOK_S = 1.0
"""Shortest time between two looks for bells."""
LEAST_MS = 1_000.0
"""A bell that goes sooner is not warmed for: the ring would meet the warming, and begin a second process."""
TOGETHER = 1.5
"""Bells within so many times the time ahead are warmed for with the first: one event for several."""
BATCH = 100
"""The most bells in one event."""


class BridgeWarmer:
    """Warms functions, on a thread of its own, for each bell that follows an idle spell.

    A bell that was never heard to ring counts as idle. Each is warmed for once a spell, whether or not that succeeds.
    `on_end` is called when the thread ends, which before `stop` is a fault.
    """

    def __init__(self, sessions: "Sessions", warming: Warming, *, on_end: Callable[[], None]) -> None:
        self._sessions = sessions
        self._warming = warming
        self._last = warming.last
        self._stopped = threading.Event()
        self.thread = daemon("warmer", self._run, on_end)
        self.sent = 0

    def stop(self) -> None:
        """Let the thread end."""
        self._stopped.set()

    def rang(self, bells: Sequence[str]) -> None:
        """Remember that these bells rang; from any thread."""
        self._last.update(dict.fromkeys(bells, self._sessions.now()))

    def look(self) -> None:
        """Warm for bells that follow an idle spell, once the first of them is near."""
        now = self._sessions.now()
        soon = sorted((at, bell) for bell, at in self._sessions.pending_bells() if self._is_soon(bell, at, now))
        if now and soon and soon[0][0] <= now + self._warming.ahead_ms:
            self._warm([bell for _, bell in soon[:BATCH]])
        self._forget(now)

    def _is_soon(self, bell: str, at: int, now: float) -> bool:
        is_near = now + LEAST_MS <= at <= now + self._warming.ahead_ms * TOGETHER
        return is_near and self._last.get(bell, -inf) <= at - self._warming.idle_ms

    def _warm(self, bells: list[str]) -> None:
        self.rang(bells)  # so that it is once a spell
        self.sent += 1
        try:
            self._warming.warm(bells)
        except (InvocationRejected, StoreMisused, StoreUnavailable) as error:
            bridge_log.warning("functions are not warmed before their bells: %s", error)

    def _forget(self, now: float) -> None:
        """Forget bells that rang so long ago that they count as idle anyway."""
        for bell, last in list(self._last.items()):
            if last <= now - self._warming.idle_ms:
                self._last.pop(bell, None)

    def _run(self) -> None:
        while not self._stopped.wait(min(LOOK_S, self._warming.ahead_ms / 4000)):
            self.look()
