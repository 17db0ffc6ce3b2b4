"""Lambda's service within the harness: finds functions by name, invokes them, and delivers what was sent to them."""

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Protocol

from ..template.model import Function
from .account import arn
from .events import Delivered, invocation_record
from .invocation import MAX_ASYNC_BYTES, MAX_SYNC_BYTES, Answer, InitFailed, Invocation, LambdaError

NAME = re.compile(r"^(?:arn:aws:lambda:[a-z0-9-]+:)?(?:\d{12}:)?(?:function:)?(?P<name>[A-Za-z0-9_-]+)(?::\$LATEST)?$")
MEASURE_EVERY = 0.1
LONGEST_THROTTLE_WAIT = 60.0


class Host(Protocol):
    """A function, and what runs it."""

    function: Function

    def pids(self) -> list[int]:
        """Processes of the function."""

    async def warm(self) -> None:
        """Be ready for one invocation. Raises InitFailed."""

    async def invoke(self, invocation: Invocation) -> Answer:
        """Run the function once. Raises LambdaError (429) where the function's limit is reached."""

    def measure(self) -> None:
        """Hold it to its memory size."""

    async def retire(self) -> None:
        """End what had nothing to do for long."""

    async def close(self) -> None:
        """End what runs it."""


class Functions:
    """Every function of the stack.

    `destine` sends an invocation record (JSON text) to a destination's ARN; `notice` tells the user what went wrong.
    A failed asynchronous invocation is tried again after each of `retry_waits` (Lambda's own: 60 and 120 s).
    """

    def __init__(
        self,
        pools: Iterable[Host],
        *,
        destine: Callable[[str, str], None],
        notice: Callable[[str], None],
        retry_waits: tuple[float, ...],
    ) -> None:
        self._pools = {pool.function.name: pool for pool in pools}
        self._names = {pool.function.logical_id: name for name, pool in self._pools.items()}
        self._destine = destine
        self._notice = notice
        self._retry_waits = retry_waits
        self._underway: set[asyncio.Task[None]] = set()

    def pids(self) -> dict[str, list[int]]:
        """The processes of each function."""
        return {name: pool.pids() for name, pool in self._pools.items()}

    async def warm(self, warmed: Callable[[str], None]) -> None:
        """Have one process of each function ready, and report each to `warmed`.

        A function that does not start goes to `notice`, and fails again when it is invoked.
        """
        await asyncio.gather(*(self._warm(pool, warmed) for pool in self._pools.values()))

    async def _warm(self, pool: Host, warmed: Callable[[str], None]) -> None:
        name = pool.function.name
        if not pool.function.concurrency:
            return
        try:
            await pool.warm()
        except InitFailed as failure:
            self._notice(f"{name} does not start: {failure.answer.payload.decode(errors='replace')}")
            return
        warmed(name)

    def find(self, name: str) -> Host:
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

    async def invoke(self, name: str, invocation: Invocation) -> Answer:
        """Run a function and wait for its answer. Raises LambdaError."""
        pool = self.find(name)
        check(invocation, MAX_SYNC_BYTES)
        return await pool.invoke(invocation)

    def send(self, name: str, invocation: Invocation) -> None:
        """Have a function run, without its answer. Raises LambdaError."""
        pool = self.find(name)
        check(invocation, MAX_ASYNC_BYTES)
        task = asyncio.create_task(self._deliver(pool, invocation))
        self._underway.add(task)
        task.add_done_callback(self._underway.discard)

    async def _deliver(self, pool: Host, invocation: Invocation) -> None:
        policy = pool.function.async_policy
        waits = iter(self._retry_waits[: policy.retries])
        started, tries = time.monotonic(), 0
        while True:
            answer = await self._admitted(pool, invocation, started + policy.max_age_s)
            tries += 1
            wait = next(waits, None)
            if answer.error is None or wait is None or time.monotonic() + wait > started + policy.max_age_s:
                break
            await asyncio.sleep(wait)
        await self._report(pool, invocation, answer, tries)

    async def _admitted(self, pool: Host, invocation: Invocation, until: float) -> Answer:
        """The answer, after however many throttles: those are no failures of the function."""
        wait = 0.05
        while True:
            try:
                return await pool.invoke(invocation)
            except LambdaError as refused:
                if time.monotonic() + wait > until:
                    text = json.dumps({"errorType": refused.kind, "errorMessage": str(refused)})
                    return Answer(text.encode(), refused.kind)
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_THROTTLE_WAIT)

    async def _report(self, pool: Host, invocation: Invocation, answer: Answer, tries: int) -> None:
        name, policy = pool.function.name, pool.function.async_policy
        destination = policy.on_failure if answer.error else policy.on_success
        if answer.error and not destination:
            self._notice(f"{name} failed {tries} times and has no failure destination: {answer.payload.decode()}")
        if destination:
            delivered = Delivered(name, invocation.request_id, invocation.payload, answer.payload, answer.error, tries)
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
