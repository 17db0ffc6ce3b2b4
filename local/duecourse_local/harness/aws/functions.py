"""Lambda's service within the harness: finds functions by name, invokes them, and delivers what was sent to them."""

import asyncio
import json
import re
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Protocol

from ..logs import Log
from ..template import Function
from .account import arn
from .concurrency import Slots, limit_of
from .events import Condition, EventOutcome, invocation_record
from .invocation import MAX_ASYNC_BYTES, MAX_SYNC_BYTES, Answer, Busy, InitFailed, Invocation, LambdaError

NAME = re.compile(r"^(?:arn:aws:lambda:[a-z0-9-]+:)?(?:\d{12}:)?(?:function:)?(?P<name>[A-Za-z0-9_-]+)(?::\$LATEST)?$")
MEASURE_EVERY = 0.1
QUIET_S = 10.0
"""Time in which one line about a full function is logged."""


class FunctionHost(Protocol):
    """A function, and what runs it."""

    function: Function
    slots: Slots

    def pids(self) -> list[int]:
        """Processes of the function."""

    async def warm(self) -> None:
        """Be ready for one invocation. Raises InitFailed."""

    async def run(self, invocation: Invocation) -> Answer:
        """Run the function once, in a slot that the caller has taken, and give the slot back.

        Raises LambdaError, and Busy where the function did not begin.
        """

    def measure(self) -> None:
        """Hold it to its memory size."""

    async def retire(self) -> None:
        """End processes that were idle for long."""

    async def close(self) -> None:
        """End its processes or threads."""


class Functions:
    """Every function of the stack.

    `destine` sends an invocation record (JSON text) to a destination's ARN; `notice` tells the user what went wrong,
    and `log` gets what was throttled or has to wait.
    A failed asynchronous invocation is tried again after each of `retry_waits` (Lambda's own: 60 and 120 s).
    """

    def __init__(
        self,
        pools: Iterable[FunctionHost],
        *,
        destine: Callable[[str, str], None],
        notice: Callable[[str], None],
        log: Log,
        retry_waits: tuple[float, ...],
    ) -> None:
        self._pools = {pool.function.name: pool for pool in pools}
        self._names = {pool.function.logical_id: name for name, pool in self._pools.items()}
        self._destine = destine
        self._notice = notice
        self._log = log
        self._noted: dict[tuple[str, str], tuple[float, int]] = {}
        """Time of the last line about each full function, and the number of its cases since."""
        self._retry_waits = retry_waits
        self._underway: set[asyncio.Task[None]] = set()

    def pids(self) -> dict[str, list[int]]:
        """The processes of each function."""
        return {name: pool.pids() for name, pool in self._pools.items()}

    async def warm(self, logical_ids: Container[str], warmed: Callable[[str], None]) -> None:
        """Have one process of each of these functions ready, and report each to `warmed`.

        A function that does not start goes to `notice`, and fails again when it is invoked.
        """
        wanted = [pool for pool in self._pools.values() if pool.function.logical_id in logical_ids]
        await asyncio.gather(*(self._warm(pool, warmed) for pool in wanted))

    async def _warm(self, pool: FunctionHost, warmed: Callable[[str], None]) -> None:
        name = pool.function.name
        if not pool.function.concurrency:
            return
        try:
            await pool.warm()
        except InitFailed as failure:
            self._notice(f"{name} does not start: {failure.answer.payload.decode(errors='replace')}")
            return
        warmed(name)

    def find(self, name: str) -> FunctionHost:
        """The function called `name`: its name, logical id, or an ARN, whole or partial. Raises LambdaError (404)."""
        match = NAME.match(name)
        found = self._pools.get(self._names.get(match["name"], match["name"])) if match else None
        if found is None:
            meant = name if name.startswith("arn:") else arn("lambda", f"function:{name}")
            raise LambdaError(404, "ResourceNotFoundException", f"Function not found: {meant}")
        return found

    def missing(self, targets: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """The kinds whose target is a function that is not here, each with the function's name."""
        for kind, target in targets.items():
            place, _, name = target.partition(":")
            if place == "lambda":
                try:
                    self.find(name)
                except LambdaError:
                    yield kind, name

    async def invoke(self, name: str, invocation: Invocation, within_s: float | None = None) -> Answer:
        """Run a function and wait for its answer: at most `within_s` seconds from its begin.

        A function without reserved concurrency is waited for, as long as its timeout. Raises LambdaError, Busy where
        the function is throttled or stays busy, and TimeoutError where there is no answer yet: the function runs on.
        """
        host = self.find(name)
        check(invocation, MAX_SYNC_BYTES)
        try:
            await host.slots.take(0.0 if host.function.reserved else host.function.timeout)
            running = asyncio.ensure_future(host.run(invocation))
            return await asyncio.wait_for(asyncio.shield(running), within_s)
        except Busy as busy:
            end = (
                "was throttled, as on AWS"
                if busy.throttled
                else f"gave up after its Timeout, {host.function.timeout:g} s"
            )
            self._log_line(host, f"{busy.detail}: a request {end}")
            raise

    def send(self, name: str, invocation: Invocation) -> None:
        """Have a function run, without its answer. Raises LambdaError."""
        host = self.find(name)
        check(invocation, MAX_ASYNC_BYTES)
        task = asyncio.create_task(self._deliver(host, invocation))
        self._underway.add(task)
        task.add_done_callback(self._underway.discard)

    async def _deliver(self, host: FunctionHost, invocation: Invocation) -> None:
        with suppress(LambdaError):  # the stack stops
            await self._report(host, await self._delivered(host, invocation))

    async def _delivered(self, host: FunctionHost, invocation: Invocation) -> EventOutcome:
        """Run an event until it succeeds, its retries are used up, or it is too old; return its end."""
        name, policy = host.function.name, host.function.async_policy
        waits = iter(self._retry_waits[: policy.retries])
        until, tries = time.monotonic() + policy.max_age_s, 0
        while True:
            try:
                await self._take_turn(host, until)
                answer = await host.run(invocation)
            except Busy:
                if time.monotonic() < until and host.function.concurrency:
                    continue
                return EventOutcome(name, invocation, _rejected_condition(host), None, tries)
            tries += 1
            wait = next(waits, None)
            if answer.error is None or wait is None:
                condition = Condition.RETRIES_EXHAUSTED if answer.error else Condition.SUCCESS
                return EventOutcome(name, invocation, condition, answer, tries)
            if time.monotonic() + wait > until:
                return EventOutcome(name, invocation, Condition.EVENT_AGE_EXCEEDED, answer, tries)
            await asyncio.sleep(wait)

    async def _take_turn(self, host: FunctionHost, until: float) -> None:
        """Take a slot for an event that is too old at `until`. Lambda polls with pauses; here no slot stays unused."""
        slots = host.slots
        if slots.taken >= host.function.concurrency:
            self._log_line(host, f"{limit_of(host.function)}: events that wait: {slots.events + 1}", kind="events")
        await slots.take(until - time.monotonic(), event=True)

    def _log_line(self, host: FunctionHost, text: str, kind: str = "requests") -> None:
        """Log that a function is full: the first time at once, then at most each QUIET_S, with the number since."""
        key, now = (host.function.name, kind), time.monotonic()
        last, since = self._noted.get(key, (-QUIET_S, 0))
        if now - last < QUIET_S:
            self._noted[key] = (last, since + 1)
            return
        self._noted[key] = (now, 0)
        more = f" (and {since} more since {now - last:.0f} s)" if since and kind == "requests" else ""
        self._log.note("WARNING" if host.function.reserved else "INFO", text + more)

    async def _report(self, host: FunctionHost, delivered: EventOutcome) -> None:
        policy, condition, answer = host.function.async_policy, delivered.condition, delivered.answer
        failed = condition != Condition.SUCCESS
        destination = policy.on_failure if failed else policy.on_success
        if answer is None:
            tried = f"after {delivered.tries} tries" if delivered.tries else "never begun"
            self._log.note("ERROR", f"{limit_of(host.function)}: an event was given up, {tried}: {condition}")
        if failed and not destination:
            ended = f"failed {delivered.tries} times" if delivered.tries else "did not begin an event"
            why = answer.payload.decode() if answer else condition
            self._notice(f"{delivered.function} {ended} and has no failure destination: {why}")
        if destination:
            await asyncio.to_thread(self._destine, destination, json.dumps(invocation_record(delivered)))

    async def idle(self) -> None:
        """Return when every invocation that was sent has ended, and those that it sent."""
        while self._underway:
            await asyncio.wait(set(self._underway))

    async def keep_measuring(self) -> None:
        """Hold all processes to their memory sizes, and end those that are idle for long, until cancelled."""
        while True:
            await asyncio.sleep(MEASURE_EVERY)
            for pool in self._pools.values():
                pool.measure()
                await pool.retire()

    async def close(self) -> None:
        """Stop every pending delivery and end every process."""
        for task in self._underway:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self._underway, return_exceptions=True)
        await asyncio.gather(*(pool.close() for pool in self._pools.values()))


def _rejected_condition(host: FunctionHost) -> Condition:
    """End of an event that found no slot in time."""
    return Condition.EVENT_AGE_EXCEEDED if host.function.concurrency else Condition.ZERO_RESERVED_CONCURRENCY


def check(invocation: Invocation, limit: int) -> None:
    """Return if Lambda would run it. Raises LambdaError: 413 for a request too large, 400 for no JSON."""
    if len(invocation.payload) > limit:
        text = f"Request must be smaller than {limit} bytes for the InvokeFunction operation"
        raise LambdaError(413, "RequestTooLargeException", text)
    try:
        json.loads(invocation.payload)
    except ValueError as error:
        text = f"Could not parse request body into json: {error}"
        raise LambdaError(400, "InvalidRequestContentException", text) from None
