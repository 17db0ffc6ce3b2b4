"""Waiting for the end of a task: what it answers, and what it leaves behind."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from duecourse import AsyncClient, Client, errors
from duecourse.app import App
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Waited
from duecourse.ledger.task import Ending, OnDuplicate, Status, Task
from duecourse.settings import Settings
from duecourse.tasks import waiting as waits
from tests.support.ledger import LEASE_MS, STATES, add, bring, claim, claim_one, new, settle
from tests.support.wait import until
from tests.support.wired import wired_with

PATIENCE_S = 60.0
SOON_S = 0.05


@pytest.fixture
def app(ledger: EmbeddedLedger) -> Iterator[App]:
    with wired_with(settings=Settings(targets={"work": "lambda:Work"}), ledger=ledger) as app:
        yield app


@pytest.fixture
def meanwhile(app: App) -> Iterator[Callable[..., Task]]:
    """What a wait answers while something happens, once it waits."""
    with ThreadPoolExecutor(1) as threads:

        def wait(happens: Callable[[], object]) -> Task:
            waiting = threads.submit(app.waiting.wait, "default", "a", "-", PATIENCE_S)
            until(lambda: app.waits.count() or waiting.done())
            happens()
            return waiting.result(PATIENCE_S)

        yield wait


@pytest.mark.parametrize("state", STATES)
def test_a_task_that_has_ended_is_answered_at_once_and_any_other_times_out(
    app: App, ledger: EmbeddedLedger, state: str
) -> None:
    bring(ledger, state)
    if state == "absent":
        with pytest.raises(errors.TaskNotFound):
            app.waiting.wait("default", "a", timeout_s=PATIENCE_S)
    elif state in {Status.SCHEDULED, Status.LEASED}:
        with pytest.raises(TimeoutError, match=f"Task a of queue default is still {state} after 0.05 s") as caught:
            app.waiting.wait("default", "a", timeout_s=SOON_S)
        assert isinstance(caught.value, errors.WaitTimedOut)
        assert app.waits.count() == 0
    else:
        assert app.waiting.wait("default", "a", timeout_s=PATIENCE_S) == app.tasks.get("default", "a")


def test_the_result_is_in_the_task(meanwhile: Callable[..., Task], ledger: EmbeddedLedger) -> None:
    leased = claim_one(ledger)
    done = meanwhile(lambda: settle(ledger, leased, Ending.DONE, result='{"pages":3}'))
    assert (done.status, done.result) == (Status.DONE, {"pages": 3})


def test_a_run_that_fails_is_no_end(meanwhile: Callable[..., Task], ledger: EmbeddedLedger) -> None:
    leased = claim_one(ledger)

    def fail_then_cancel() -> None:
        settle(ledger, leased, Ending.RETRY, delay_ms=LEASE_MS)
        ledger.cancel("default", ["a"])

    assert meanwhile(fail_then_cancel).status is Status.CANCELLED


def test_what_replaces_a_running_task_is_waited_for(meanwhile: Callable[..., Task], ledger: EmbeddedLedger) -> None:
    leased = claim_one(ledger)

    def replace() -> None:
        ledger.add([new(payload='{"second":true}', on_duplicate=OnDuplicate.REPLACE)])
        settle(ledger, leased, Ending.DONE, result="1")
        settle(ledger, claim(ledger)[0], Ending.DONE, result="2")

    assert meanwhile(replace).result == 2


@pytest.fixture
def late_news(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """What lets the news of ends through, which wait for it."""
    through, tell = threading.Event(), waits.CompletionWatcher._tell

    def slowly(self: waits.CompletionWatcher, waited: Waited) -> None:
        through.wait(PATIENCE_S)
        tell(self, waited)

    monkeypatch.setattr(waits.CompletionWatcher, "_tell", slowly)
    return through


def test_a_replay_that_was_quicker_than_the_news_of_the_death_is_waited_for(
    meanwhile: Callable[..., Task], ledger: EmbeddedLedger, app: App, late_news: threading.Event
) -> None:
    leased = claim_one(ledger)

    def die_and_live() -> None:
        settle(ledger, leased, Ending.DROP)
        app.tasks.replay("default", "a")
        late_news.set()
        settle(ledger, claim(ledger)[0], Ending.DONE)

    assert meanwhile(die_and_live).status is Status.DONE


def test_a_task_that_is_deleted_before_the_news_of_its_end_is_not_there(
    meanwhile: Callable[..., Task], ledger: EmbeddedLedger, late_news: threading.Event
) -> None:
    leased = claim_one(ledger)

    def die_and_go() -> None:
        settle(ledger, leased, Ending.DROP)
        ledger.cancel("default", ["a"])
        late_news.set()

    with pytest.raises(errors.TaskNotFound):
        meanwhile(die_and_go)


def test_an_event_loop_waits_for_many_on_one_thread(app: App, ledger: EmbeddedLedger) -> None:
    ids = [f"a{n}" for n in range(200)]
    ledger.add([new(id) for id in ids])

    async def wait() -> list[Task]:
        waiting = [
            asyncio.create_task(app.waiting.wait_async("default", id, "-", PATIENCE_S, asyncio.to_thread)) for id in ids
        ]
        while app.waits.count() < len(ids):
            await asyncio.sleep(0.01)
        assert [one.name for one in threading.enumerate()].count("waits") == 1
        for task in [task for _ in range(9) for task in claim(ledger)]:
            settle(ledger, task, Ending.DONE, result=f'"{task.id}"')
        return await asyncio.gather(*waiting)

    assert [task.result for task in asyncio.run(wait())] == ids


def test_an_event_loop_gives_up_as_a_thread_does(app: App, ledger: EmbeddedLedger) -> None:
    add(ledger, delay_ms=LEASE_MS)
    with pytest.raises(errors.WaitTimedOut, match="still scheduled"):
        asyncio.run(app.waiting.wait_async("default", "a", "-", SOON_S, asyncio.to_thread))
    until(lambda: not app.waits.count())


def test_a_wait_that_is_cancelled_waits_no_longer(app: App, ledger: EmbeddedLedger) -> None:
    add(ledger, delay_ms=LEASE_MS)

    async def cancel() -> None:
        waiting = asyncio.create_task(app.waiting.wait_async("default", "a", "-", None, asyncio.to_thread))
        while not app.waits.count():
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancel())
    until(lambda: not app.waits.count())


def test_who_waits_on_what_is_closed_is_told(ledger: EmbeddedLedger) -> None:
    add(ledger, delay_ms=LEASE_MS)
    with wired_with(ledger=ledger) as app, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(app.waiting.wait, "default", "a")
        until(app.waits.count)
        app.close()
        with pytest.raises(errors.StoreUnavailable):
            waiting.result(PATIENCE_S)
        assert "waits" not in [one.name for one in threading.enumerate()]
        with pytest.raises(errors.StoreUnavailable, match="closed"):
            app.waiting.wait("default", "a")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_of_the_listener_leaves_nobody_waiting(
    app: App, ledger: EmbeddedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(ledger, delay_ms=LEASE_MS)

    def fault(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(ledger, "end_listener", fault)
    with pytest.raises(errors.StoreUnavailable, match="nobody listens"):
        app.waiting.wait("default", "a", timeout_s=PATIENCE_S)
    monkeypatch.undo()
    with pytest.raises(errors.WaitTimedOut):
        app.waiting.wait("default", "a", timeout_s=SOON_S)


def test_the_thread_goes_once_nobody_waits(app: App, ledger: EmbeddedLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "STAYS_S", 0.01)
    add(ledger, delay_ms=LEASE_MS)
    for _ in range(3):
        with pytest.raises(errors.WaitTimedOut):
            app.waiting.wait("default", "a", timeout_s=SOON_S)
        until(lambda: "waits" not in [one.name for one in threading.enumerate()])


@pytest.mark.usefixtures("app")
def test_a_client_waits_with_the_checks_of_its_other_verbs(ledger: EmbeddedLedger) -> None:
    bring(ledger, "done")
    client = Client.from_env()
    assert client.wait("a", timeout="PT5S").result == {"ok": True}
    with pytest.raises(errors.InvalidInput, match=r"id: must be .*; timeout: must be a duration"):
        client.wait("a b", timeout="soon")
    with pytest.raises(errors.TaskNotFound):
        client.wait("b", timeout=1)


@pytest.mark.usefixtures("app")
def test_an_asynchronous_client_waits_without_its_threads(ledger: EmbeddedLedger) -> None:
    ledger.add([new(f"a{n}") for n in range(20)])

    async def wait() -> list[Task]:
        async with AsyncClient.from_env(threads=1) as client:
            waiting = [asyncio.create_task(client.wait(f"a{n}", timeout=PATIENCE_S)) for n in range(20)]
            for task in claim(ledger):
                settle(ledger, task, Ending.DONE)
            with pytest.raises(errors.InvalidInput, match="timeout: must be a duration"):
                await client.wait("a0", timeout="soon")
            return await asyncio.gather(*waiting)

    assert {task.status for task in asyncio.run(wait())} == {Status.DONE}
