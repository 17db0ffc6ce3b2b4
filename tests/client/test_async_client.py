"""The client for asyncio: the verbs of the other one, on threads of its own, and a loop that never waits for them."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from duecourse import (
    AsyncClient,
    AsyncReminderClient,
    AsyncScheduleClient,
    Client,
    ReminderClient,
    ScheduleClient,
    errors,
)
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import AddReply
from duecourse.ledger.task import AddResult, NewTask
from tests.support.ledger import stored_task
from tests.support.requests import MEETING
from tests.support.wired import wired_with

HOOK: dict[str, Any] = {"kind": "webhook", "payload": {"url": "https://example.com/"}, "delay": "PT1H"}
OWN = {"close", "from_env"}
"""Verbs on the client itself: each of the two has its own."""
asked: ContextVar[str] = ContextVar("asked", default="nobody")


class Slow(EmbeddedLedger):
    """A ledger that adds no task before it may."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.may, self.begun = threading.Event(), threading.Semaphore(0)
        self.threads, self.contexts = set[str](), list[str]()
        self._counting = threading.Lock()
        self.now_in = self.most_in = 0

    def add_each(self, tasks: Sequence[NewTask]) -> list[AddReply | errors.DuecourseError]:
        with self._counting:
            self.now_in += 1
            self.most_in = max(self.most_in, self.now_in)
            self.threads.add(threading.current_thread().name)
            self.contexts.append(asked.get())
        self.begun.release()
        try:
            assert self.may.wait(30)
            return super().add_each(tasks)
        finally:
            with self._counting:
                self.now_in -= 1


async def in_thread(wait: Callable[[], object]) -> None:
    await asyncio.to_thread(wait)


def verbs_of(kind: type) -> dict[str, Any]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name: verb for name, verb in found if not name.startswith("_") and name not in OWN}


@pytest.mark.parametrize(
    ("kind", "other"),
    [(Client, AsyncClient), (ReminderClient, AsyncReminderClient), (ScheduleClient, AsyncScheduleClient)],
)
def test_both_clients_have_the_same_verbs_parameters_and_texts(kind: type, other: type) -> None:
    usual, awaited = verbs_of(kind), verbs_of(other)
    assert usual.keys() == awaited.keys()
    for name, verb in usual.items():
        assert inspect.iscoroutinefunction(awaited[name]), name
        assert inspect.signature(awaited[name]) == inspect.signature(verb), name
        assert inspect.getdoc(awaited[name]) == inspect.getdoc(verb) != "", name


def test_verbs_are_awaited_reminders_too() -> None:
    async def use() -> None:
        async with AsyncClient("memory://", tenant="acme", namespace="x") as client:
            assert repr(client) == "AsyncClient('memory://', tenant='acme')"
            assert (await client.add(**HOOK, id="a")).created
            assert (await client.get("a")).tenant == "acme"
            assert len((await client.list()).tasks) == 1
            with pytest.raises(errors.TaskNotFound):
                await client.get("b")
            with pytest.raises(errors.InvalidInput, match="delay"):
                await client.add(**HOOK | {"delay": "soon"})
            assert (await client.reminders.add(**MEETING)).created
            assert (await client.reminders.get("standup")).id == "standup"
            with pytest.raises(errors.QueueNotFound):
                await client.get_queue("nowhere")

    asyncio.run(use())


def test_a_loop_goes_on_while_a_verb_waits_and_no_more_run_than_there_are_threads() -> None:
    async def use(ledger: Slow) -> None:
        async with AsyncClient.from_env(threads=2) as client:
            adds = list[asyncio.Task[AddResult]]()
            for n in range(2):
                adds.append(asyncio.create_task(client.add(**HOOK, id=str(n))))
                await in_thread(ledger.begun.acquire)
            adds += [asyncio.create_task(client.add(**HOOK, id=str(n))) for n in range(2, 6)]
            await asyncio.sleep(0)
            ledger.may.set()  # by this loop: if a verb held it, nobody would
            assert {(await one).created for one in adds} == {True}

    ledger = Slow()
    with wired_with(ledger=ledger):
        asyncio.run(use(ledger))
    assert ledger.most_in == 2
    assert all(name.startswith("duecourse-client") for name in ledger.threads)


def test_adds_that_come_while_every_thread_adds_go_together() -> None:
    async def use(ledger: Slow) -> None:
        async with AsyncClient.from_env(threads=1) as client:
            adds = [asyncio.create_task(client.add(**HOOK))]
            await in_thread(ledger.begun.acquire)
            for n in range(3):  # each in a turn of its own
                asked.set(f"waiting {n}")
                adds.append(asyncio.create_task(client.add(**HOOK)))
                await in_thread(lambda: None)
            ledger.may.set()
            assert {(await one).created for one in adds} == {True}

    ledger = Slow()
    with wired_with(ledger=ledger):
        asyncio.run(use(ledger))
    assert ledger.contexts == ["nobody", "waiting 0"]


def test_an_await_that_is_cancelled_leaves_a_client_that_works() -> None:
    async def use(ledger: Slow) -> None:
        async with AsyncClient.from_env(threads=1) as client:
            first = asyncio.create_task(client.add(**HOOK, id="begun"))
            await in_thread(ledger.begun.acquire)
            second = asyncio.create_task(client.add(**HOOK, id="never"))
            await asyncio.sleep(0)
            for one in (second, first):
                one.cancel()
            assert await asyncio.gather(first, second, return_exceptions=True) != []
            assert first.cancelled()
            assert second.cancelled()
            ledger.may.set()
            assert (await client.add(**HOOK, id="after")).created

    ledger = Slow()
    with wired_with(ledger=ledger):
        asyncio.run(use(ledger))
    assert (stored_task(ledger, "begun").id, stored_task(ledger, "after").id) == ("begun", "after")
    assert ledger.get("default", "never") is None


def test_a_verb_runs_in_the_context_of_its_caller() -> None:
    async def use() -> None:
        asked.set("ada")
        async with AsyncClient.from_env() as client:
            await client.add(**HOOK)

    ledger = Slow()
    ledger.may.set()
    with wired_with(ledger=ledger):
        asyncio.run(use())
    assert ledger.contexts == ["ada"]


def test_closing_finishes_what_was_begun_and_ends_the_threads() -> None:
    async def use(ledger: Slow) -> None:
        client = AsyncClient.from_env()
        adding = asyncio.create_task(client.add(**HOOK, id="a"))
        await in_thread(ledger.begun.acquire)
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        with pytest.raises(errors.ClientClosed):
            await client.get("a")
        ledger.may.set()
        await closing
        assert (await adding).created
        await client.close()
        with pytest.raises(errors.ClientClosed):
            await client.reminders.get("standup")

    ledger = Slow()
    with wired_with(ledger=ledger):
        asyncio.run(use(ledger))
    assert [one.name for one in threading.enumerate() if one.name.startswith("duecourse-client")] == []


@pytest.mark.parametrize("threads", [0, 257])
def test_a_wrong_number_of_threads_is_named(threads: int) -> None:
    with pytest.raises(errors.InvalidSettings, match="threads: must be 1 to 256"):
        AsyncClient("memory://", threads=threads)
