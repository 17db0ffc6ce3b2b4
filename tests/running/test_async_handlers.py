"""An async handler: outcomes, places on the loop, cancels, what must not block it, in functions and in drains."""

import asyncio
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest

from duecourse import Again, Done, Drop, Kind, Lost, Retry, Task, extend, save, task_handler
from duecourse.app import App, Parts
from duecourse.errors import LeaseLost, TaskDamaged
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import SEALED, Ending, Outcome, Run, Settlement, Status
from duecourse.running import event_loop as loop_module
from duecourse.running.batches import HELD, WorkBatches
from duecourse.running.event_loop import LOOP, LOST, EventLoop, RunCancelled
from duecourse.running.leases import LeaseExtender
from duecourse.running.run import DIED, FIELD, STOPPED, AsyncKind, Runner
from duecourse.running.task_event import decode_tasks, message_body, tasks_event
from duecourse.running.threads import Threads
from duecourse.settings import Settings
from duecourse.testing import Duecourse, make_task, run
from tests.support.brokers import sqs_event
from tests.support.clock import START, HandClock
from tests.support.engine import Lambda, Table, targets_of
from tests.support.functions import Context
from tests.support.kinds import leased
from tests.support.ledger import SHARD, claim, claim_one, new, stored_task
from tests.support.wait import until
from tests.support.wired import wired_with

TIMEOUT_S = 30
ON_LOOP = "duecourse-loop"


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture(autouse=True)
def wired(ledger: EmbeddedLedger, table: Table) -> Iterator[None]:
    with wired_with(ledger=ledger, results=table):
        yield


def event(ledger: EmbeddedLedger, *ids: str, payload: object = None) -> dict[str, object]:
    """The engine's event for tasks with these ids, as it comes over the wire."""
    ledger.add([new(id, payload=json.dumps(payload)) for id in ids])
    return dict(json.loads(json.dumps(tasks_event(claim(ledger)))))


class Most:
    """Counts what runs at the same time, and waits each time until so many do."""

    def __init__(self, together: int) -> None:
        self.most = 0
        self._running = 0
        self._together = together
        self._lock = threading.Lock()
        self._is_full = threading.Event()

    def enter(self) -> None:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
            if self._running >= self._together:
                self._is_full.set()

    def leave(self) -> None:
        with self._lock:
            self._running -= 1

    def wait(self) -> None:
        self.enter()
        assert self._is_full.wait(TIMEOUT_S)
        self.leave()

    async def wait_async(self) -> None:
        self.enter()
        async with asyncio.timeout(TIMEOUT_S):
            while not self._is_full.is_set():
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)  # time for more to begin, if they might
        self.leave()


# Outcomes.


@task_handler
async def handler(task: Task) -> Outcome | None:
    """Do as the payload says."""
    await asyncio.sleep(0)
    match task.payload["do"]:
        case "done":
            return Done({"by": task.id})
        case "drop":
            return Drop("no use")
        case "retry":
            return Retry(error="not yet")
        case "again":
            return Again(after="PT1M", state={"step": 2})
        case "raise":
            raise LookupError("no such customer")
        case "exit":
            raise SystemExit(3)
        case "cancelled":
            raise asyncio.CancelledError
    return None


@pytest.mark.parametrize(
    ("do", "counted", "status", "error"),
    [
        ("done", "done", Status.DONE, ""),
        ("nothing", "done", Status.DONE, ""),
        ("drop", "dead", Status.DEAD, "no use"),
        ("retry", "retried", Status.SCHEDULED, "not yet"),
        ("again", "again", Status.SCHEDULED, ""),
        (
            "raise",
            "retried",
            Status.SCHEDULED,
            "LookupError: no such customer at tests/running/test_async_handlers.py:",
        ),
        ("exit", "retried", Status.SCHEDULED, "SystemExit: 3 at tests/running/test_async_handlers.py:"),
        (
            "cancelled",
            "retried",
            Status.SCHEDULED,
            "asyncio.exceptions.CancelledError at tests/running/test_async_handlers.py:",
        ),
    ],
)
def test_each_task_is_settled_as_the_function_says(
    ledger: EmbeddedLedger, do: str, counted: str, status: Status, error: str
) -> None:
    answer = handler(event(ledger, "a", payload={"do": do}), Context())
    assert {name: count for name, count in answer.items() if count} == {counted: 1}
    task = stored_task(ledger)
    assert (task.status, task.attempt) == (status, 2 if counted == "retried" else 1)
    assert task.error.startswith(error)
    assert handler(event(ledger, "b", payload={"do": "done"}), Context())["done"] == 1, "the loop goes on"


def test_an_exit_of_a_task_that_a_handler_started_leaves_the_loop_running(
    ledger: EmbeddedLedger, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave() -> None:
        raise SystemExit

    @task_handler
    async def starting(_task: Task) -> None:
        left = asyncio.create_task(leave())
        await asyncio.wait([left])

    assert starting(event(ledger, "a"), Context())["done"] == 1
    assert "wanted to end the event loop" in caplog.text


def test_it_keeps_its_name_and_words() -> None:
    assert (handler.__name__, handler.__doc__) == ("handler", "Do as the payload says.")


# Functions.


def test_tasks_of_a_function_await_beside_each_other_on_one_thread(ledger: EmbeddedLedger) -> None:
    together, threads = Most(60), set[str]()

    @task_handler
    async def meeting(_task: Task) -> None:
        threads.add(threading.current_thread().name)
        await together.wait_async()

    given = event(ledger, *(f"t{n}" for n in range(60)))
    assert meeting(given, Context())["done"] == 60
    assert (together.most, threads) == (60, {ON_LOOP})


def test_a_function_awaits_as_many_as_it_says(ledger: EmbeddedLedger) -> None:
    together = Most(2)

    @task_handler(parallel=2)
    async def meeting(_task: Task) -> None:
        await together.wait_async()

    assert meeting(event(ledger, *"abcdefg"), Context())["done"] == 7
    assert together.most == 2


def test_a_function_reads_messages_of_a_queue(ledger: EmbeddedLedger) -> None:
    dos = ("done", "raise", "nothing", "retry", "drop", "again")
    given = [message_body(leased("work", {"do": do}, id=do)) for do in dos]
    answer: Any = handler(sqs_event(*given), Context())
    assert sorted(each["itemIdentifier"] for each in answer["batchItemFailures"]) == ["m-1", "m-3"]
    assert stored_task(ledger, "again").state == {"step": 2}


def test_a_message_that_is_to_run_again_is_given_to_the_ledger_beside_the_loop(clock: HandClock) -> None:
    threads = set[str]()

    class NotingLedger(EmbeddedLedger):
        def add(self, *given: Any, **named: Any) -> Any:
            threads.add(threading.current_thread().name)
            return super().add(*given, **named)

    with wired_with(ledger=NotingLedger(clock)):
        handler(sqs_event(message_body(leased("work", {"do": "again"}))), Context())
    assert threads
    assert ON_LOOP not in threads


def test_a_function_awaits_as_many_messages_as_it_says() -> None:
    together = Most(2)

    @task_handler(parallel=2)
    async def meeting(_task: Task) -> None:
        await together.wait_async()

    given = [message_body(leased("work", {}, id=f"t{n}")) for n in range(7)]
    assert meeting(sqs_event(*given), Context()) == {"batchItemFailures": []}
    assert together.most == 2


def test_results_are_written_to_their_table_beside_the_loop(ledger: EmbeddedLedger) -> None:
    threads = set[str]()

    class NotingTable(Table):
        def put(self, task: Task, result_json: str, now: int) -> bool:
            threads.add(threading.current_thread().name)
            return super().put(task, result_json, now)

    with wired_with(ledger=ledger, results=NotingTable()):
        assert handler(event(ledger, "a", payload={"do": "done"}), Context())["done"] == 1
    assert threads
    assert ON_LOOP not in threads


def test_a_seal_is_opened_beside_the_loop() -> None:
    threads = set[str]()

    def opened(task: Task) -> Task:
        threads.add(threading.current_thread().name)
        return task

    runner = runner_of(lambda _task: asyncio.sleep(0), opened=opened)
    assert LOOP.run(lambda: runner.run_async(leased("awaited", {}))).ending is Ending.DONE
    assert threads == {ON_LOOP}
    threads.clear()
    LOOP.run(lambda: runner.run_async(leased("awaited", {}, payload_json=f"{SEALED}{{}}")))
    assert threads
    assert ON_LOOP not in threads


# Checkpoints, context, log lines.


def test_a_checkpoint_and_more_time_are_asked_for_beside_the_loop(ledger: EmbeddedLedger, clock: HandClock) -> None:
    seen: list[object] = []

    @task_handler
    async def saving(task: Task) -> Again:
        await asyncio.to_thread(save, task, {"at": 3})
        seen.append(stored_task(ledger).state)
        await asyncio.to_thread(extend, task, "PT50S")
        seen.append(stored_task(ledger).lease_expires_at - clock.at)
        return Again(after="PT1M")

    [task] = decode_tasks(event(ledger, "a"))
    app = App(Settings(), Parts(ledger=ledger))
    with wired_with(ledger=EmbeddedLedger(clock)):  # the process has another ledger: the run has its own
        assert saving.run(app, task) == Again(after="PT1M")
    assert seen == [{"at": 3}, 50_000]


def test_each_log_line_carries_the_id_of_its_task(ledger: EmbeddedLedger, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    both = Most(2)

    @task_handler
    async def logging_twice(task: Task) -> None:
        logging.getLogger("own").info("begin %s", task.id)
        await both.wait_async()
        logging.getLogger("own").info("end %s", task.id)

    logging_twice(event(ledger, "a", "b"), Context())
    found = {record.getMessage(): vars(record)[FIELD] for record in caplog.records if record.name == "own"}
    assert found == {"begin a": "a", "begin b": "b", "end a": "a", "end b": "b"}


# Cancels.


@pytest.fixture
def loop() -> EventLoop:
    """A loop that may be stopped."""
    return EventLoop()


def cancelled_run(
    loop: EventLoop, cancel: Callable[[Task], object], after: Outcome | Exception | None = None
) -> Settlement:
    """End of a run that is cancelled once it awaits; `after` is its outcome, or its error, in spite of that."""
    began, task = threading.Event(), leased("awaited", {}, signal=Lost())

    async def awaiting(_task: Task) -> Outcome | None:
        began.set()
        try:
            await asyncio.sleep(TIMEOUT_S)
        except asyncio.CancelledError:
            if after is None:
                raise
            if isinstance(after, Exception):
                raise after from None
        return after

    async def handled(task: Task) -> Outcome | None:
        return await loop.handle(awaiting(task), task.lost)

    def then() -> None:
        assert began.wait(TIMEOUT_S)
        cancel(task)

    thread = threading.Thread(target=then)
    thread.start()
    end = loop.run(lambda: runner_of(handled).run_async(task))
    thread.join()
    return end


def test_a_handler_is_cancelled_when_its_lease_is_lost(loop: EventLoop) -> None:
    end = cancelled_run(loop, lambda task: task.lost.set())
    assert (end.ending, end.detail) == (Ending.RELEASE, LOST)


def test_a_handler_whose_lease_was_lost_before_it_awaits_is_cancelled_at_its_first_await() -> None:
    lost = Lost()
    lost.set()
    with pytest.raises(RunCancelled, match=LOST):
        LOOP.run(lambda: LOOP.handle(asyncio.sleep(TIMEOUT_S), lost))


def test_a_handler_is_cancelled_by_the_stop_of_its_process_and_spends_no_attempt(loop: EventLoop) -> None:
    end = cancelled_run(loop, lambda _task: loop.stop(STOPPED))
    assert (end.ending, end.detail) == (Ending.RELEASE, STOPPED)


@pytest.mark.parametrize("error", [ConnectionError("it is gone"), TaskDamaged("a")])
def test_an_error_in_the_clean_up_after_a_stop_is_logged_and_spends_no_attempt(
    loop: EventLoop, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    end = cancelled_run(loop, lambda _task: loop.stop(STOPPED), after=error)
    assert (end.ending, end.detail) == (Ending.RELEASE, STOPPED)
    assert f"{type(error).__name__}: {error}" in caplog.text


def test_a_handler_that_answers_a_cancel_by_an_outcome_has_that_outcome(loop: EventLoop) -> None:
    end = cancelled_run(loop, lambda _task: loop.stop(STOPPED), after=Again(after="PT1M", state={"at": 7}))
    assert (end.ending, end.state) == (Ending.AGAIN, '{"at":7}')


def test_a_cancel_that_comes_as_the_handler_returns_leaves_the_rest_of_its_run_alone(loop: EventLoop) -> None:
    lost = Lost()

    async def handler() -> str:
        lost.set()  # it is heard of once the loop goes on
        loop.stop(STOPPED)
        return "done"

    async def run() -> str:
        outcome = await loop.handle(handler(), lost)
        await asyncio.sleep(0.01)
        return outcome

    assert loop.run(run) == "done"


@pytest.mark.parametrize("is_there", [False, True], ids=["no loop yet", "a loop"])
def test_a_handler_that_would_begin_after_the_stop_does_not(loop: EventLoop, is_there: bool) -> None:
    begun = list[bool]()

    async def handler() -> None:
        begun.append(True)

    async def handled(task: Task) -> None:
        await loop.handle(handler(), task.lost)

    if is_there:
        loop.run(lambda: asyncio.sleep(0))
    loop.stop(STOPPED)
    end = loop.run(lambda: runner_of(handled).run_async(leased("awaited", {})))
    assert (end.ending, end.detail, begun) == (Ending.RELEASE, STOPPED, [])


def test_a_handler_that_waits_for_another_one_by_a_plain_call_learns_to_await_it(loop: EventLoop) -> None:
    ends = list[BaseException | None]()

    async def wait() -> None:
        loop.run(lambda: asyncio.sleep(0))

    def run() -> None:
        try:
            loop.run(wait)
        except RuntimeError as error:
            ends.append(error)

    threading.Thread(target=run, daemon=True).start()  # one that waits for itself never ends
    assert "await it" in str(until(lambda: ends))


def test_a_forced_cancel_that_a_checkpoint_meets_cancels_the_handler(ledger: EmbeddedLedger) -> None:
    seen: list[type[BaseException]] = []

    @task_handler
    async def saving(task: Task) -> None:
        ledger.cancel("default", ["a"], force=True)
        try:
            with suppress(LeaseLost):
                await asyncio.to_thread(save, task, {})
            await asyncio.sleep(TIMEOUT_S)
        except BaseException as error:
            seen.append(type(error))
            raise

    assert saving(event(ledger, "a"), Context())["stale"] == 1
    assert seen == [asyncio.CancelledError]


# Blocks of the loop.


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "has blocked the event loop" in record.getMessage()]


@pytest.mark.slow
def test_a_handler_that_blocks_the_loop_is_logged_once_a_block_with_its_stack(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop_module, "BLOCKED_S", 0.5)
    loop = EventLoop()

    async def block_the_loop() -> None:
        time.sleep(1.5)

    async def two_blocks() -> None:
        for _ in range(2):
            await loop.handle(block_the_loop(), Lost())
            await asyncio.sleep(0.1)

    loop.run(two_blocks)
    found = reports(caplog)
    assert len(found) == 2
    assert all("in block_the_loop\n    time.sleep(1.5)" in one for one in found)


@pytest.mark.slow
def test_handlers_that_await_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    loop = EventLoop()
    loop.run(lambda: loop.handle(asyncio.sleep(2), Lost()))
    assert reports(caplog) == []


# Drains of a worker.


def runner_of(
    awaited: Callable[[Task], Coroutine[Any, Any, Any]],
    plain: Callable[[Task], Outcome | None] = lambda _task: None,
    **parts: Any,
) -> Runner:
    """Runner with the kind `awaited`, which is async, and plain ones of any other name."""
    kinds: dict[str, AsyncKind] = {"awaited": awaited}
    return Runner(lambda _kind: plain, None, HandClock().now, random.Random(1), async_kind_of=kinds.get, **parts)


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads(4)
    yield made
    made.close()


def batches_of(runner: Runner, threads: Threads) -> WorkBatches:
    return WorkBatches(runner, targets_of({}, Lambda()), threads)


def gathered(batches: WorkBatches, count: int) -> list[Settlement]:
    found: list[Settlement] = []

    def are_all() -> bool:
        found.extend(end for _, ends in batches.gather(0.05) for end in ends)
        return len(found) >= count

    until(are_all)
    return found


def tasks_of(count: int, kind: str = "awaited", name: str = "t", **fields: Any) -> list[Task]:
    return [leased(kind, {}, id=f"{name}{n}", token=f"{name}{n}", **fields) for n in range(count)]


def test_a_drain_awaits_as_many_tasks_as_it_has_places_and_needs_no_thread(threads: Threads) -> None:
    together, on = Most(4), set[str]()

    async def meet(_task: Task) -> None:
        on.add(threading.current_thread().name)
        await together.wait_async()

    batches = batches_of(runner_of(meet), threads)
    batches.begin(SHARD, tasks_of(30), {}, 30)
    ends = gathered(batches, 30)
    assert sorted(end.id for end in ends) == sorted(task.id for task in tasks_of(30))
    assert {end.ending for end in ends} == {Ending.DONE}
    assert (together.most, on, threads._threads) == (4, {ON_LOOP}, [])
    until(lambda: batches._called == 0)


def test_plain_and_async_tasks_share_the_places(threads: Threads) -> None:
    together = Most(4)

    def meet(_task: Task) -> None:
        together.wait()

    async def meet_async(_task: Task) -> None:
        await together.wait_async()

    batches = batches_of(runner_of(meet_async, meet), threads)
    pairs = zip(tasks_of(20, name="a"), tasks_of(20, "plain", "p"), strict=True)
    batches.begin(SHARD, [task for pair in pairs for task in pair], {}, 40)
    assert {end.ending for end in gathered(batches, 40)} == {Ending.DONE}
    assert together.most == 4
    until(lambda: batches._called == 0)


@pytest.mark.parametrize("kinds", [("awaited", "plain"), ("plain", "awaited")])
def test_one_that_ends_gives_its_place_to_a_task_of_the_other_sort(kinds: tuple[str, str]) -> None:
    threads, order = Threads(1), list[str]()

    async def note_async(task: Task) -> None:
        order.append(task.id)

    batches = batches_of(runner_of(note_async, lambda task: order.append(task.id)), threads)
    given = [leased(kinds[n % 2], {}, id=f"t{n}", token=f"t{n}") for n in range(9)]
    batches.begin(SHARD, given, {}, 9)
    assert [end.id for end in gathered(batches, 9)] == order == [task.id for task in given]
    threads.close()


def test_what_one_run_sets_in_its_context_no_other_sees() -> None:
    own: ContextVar[str] = ContextVar("own", default="")
    threads, seen = Threads(1), list[str]()

    async def setting(task: Task) -> None:
        seen.append(own.get())
        own.set(task.id)

    batches = batches_of(runner_of(setting), threads)
    batches.begin(SHARD, tasks_of(3), {}, 3)
    gathered(batches, 3)
    assert seen == ["", "", ""]
    threads.close()


def test_instant_tasks_have_a_thread_beside_what_awaits(threads: Threads) -> None:
    gate = asyncio.Event()

    async def wait(_task: Task) -> None:
        await gate.wait()

    batches = batches_of(runner_of(wait), threads)
    batches._times.note("plain", 0.0)
    batches.begin(SHARD, tasks_of(1), {}, 1)
    for name in ("p", "q"):
        batches.begin(SHARD, tasks_of(2_000, "plain", name), {}, 2_000)  # for several turns of a thread
        # Nobody gathers, and so nobody looks whether they wait.
        until(lambda: not batches._unstarted and batches._called == 1)
    assert len(batches._outbox) == 4_000
    LOOP.run(lambda: asyncio.sleep(0, gate.set()))
    gathered(batches, 4_001)
    assert (batches._called, batches._lasting) == (0, 0)


def test_async_tasks_that_wait_for_a_place_are_taken_back(threads: Threads) -> None:
    gate = asyncio.Event()
    batches = batches_of(runner_of(lambda _task: gate.wait()), threads)
    batches.begin(SHARD, tasks_of(6), {}, 6)
    taken = batches.take_back()
    assert [(batch.token, [end.ending for end in ends]) for batch, ends in taken] == [
        ("t4", [Ending.RELEASE]),
        ("t5", [Ending.RELEASE]),
    ]
    LOOP.run(lambda: asyncio.sleep(0, gate.set()))
    assert len(gathered(batches, 4)) == 4


def test_no_tenant_has_all_places_of_the_loop(threads: Threads) -> None:
    gate = asyncio.Event()

    async def wait(_task: Task) -> None:
        await gate.wait()

    batches = batches_of(runner_of(wait), threads)
    batches.begin(SHARD, tasks_of(4, tenant="hostile"), {}, 4)
    [held_back] = gathered(batches, 1)
    assert (held_back.ending, held_back.detail) == (Ending.RELEASE, HELD)
    LOOP.run(lambda: asyncio.sleep(0, gate.set()))
    assert {end.ending for end in gathered(batches, 3)} == {Ending.DONE}


def test_a_handler_that_cancels_all_tasks_of_the_loop_keeps_no_other_from_running(threads: Threads) -> None:
    ran = list[str]()

    async def cancel_all(task: Task) -> None:
        for other in asyncio.all_tasks() - {asyncio.current_task()} if task.id == "t0" else ():
            other.cancel()
        ran.append(task.id)

    async def begin() -> None:  # on the loop, so that all are there before the first one runs
        batches.begin(SHARD, tasks_of(4), {}, 4)

    batches = batches_of(runner_of(cancel_all), threads)
    LOOP.run(begin)
    assert {end.ending for end in gathered(batches, 4)} == {Ending.DONE}
    assert sorted(ran) == ["t0", "t1", "t2", "t3"]
    until(lambda: batches._called == batches._lasting == 0)


def test_a_handler_that_cancels_its_own_run_too_and_awaits_nothing_more_runs_once(threads: Threads) -> None:
    ran = list[str]()

    async def cancel_all(task: Task) -> None:
        for each in asyncio.all_tasks() if not ran else ():
            each.cancel()
        ran.append(task.id)

    batches = batches_of(runner_of(cancel_all), threads)
    batches.begin(SHARD, tasks_of(1), {}, 1)
    assert [end.ending for end in gathered(batches, 1)] == [Ending.DONE]
    for _ in range(2):  # by then the loop has begun what it was to begin
        LOOP.run(lambda: asyncio.sleep(0))
    assert ran == ["t0"]
    assert (batches._called, batches._lasting, batches.in_flight) == (0, 0, 0)


def test_a_run_that_is_cancelled_while_its_seal_is_opened_goes_on_as_if_it_was_not(threads: Threads) -> None:
    opening, gate, cancelled = threading.Event(), threading.Event(), list[int]()

    def opened(task: Task) -> Task:
        opening.set()
        assert gate.wait(TIMEOUT_S)
        return task

    async def note(_task: Task) -> None:
        current = asyncio.current_task()
        assert current
        cancelled.append(current.cancelling())  # by which asyncio.timeout and TaskGroup know a cancel from outside

    async def cancel_all() -> None:
        for other in asyncio.all_tasks() - {asyncio.current_task()}:
            other.cancel()

    batches = batches_of(runner_of(note, opened=opened), threads)
    batches.begin(SHARD, tasks_of(1, payload_json=f"{SEALED}{{}}"), {}, 1)
    assert opening.wait(TIMEOUT_S)
    LOOP.run(cancel_all)
    gate.set()
    assert [end.ending for end in gathered(batches, 1)] == [Ending.DONE]
    assert cancelled == [0]
    until(lambda: batches._called == batches._lasting == 0)


def test_a_fault_of_duecourses_own_costs_no_place(threads: Threads, caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(Runner):
        async def run_async(self, task: Task) -> Settlement:
            raise ValueError(task.id)

    kinds: dict[str, AsyncKind] = {"awaited": asyncio.sleep}
    runner = Faulty(lambda _kind: None, None, HandClock().now, random.Random(1), async_kind_of=kinds.get)
    batches = batches_of(runner, threads)
    batches.begin(SHARD, tasks_of(9), {}, 9)
    until(lambda: batches.gather(0.05) is not None and batches.in_flight == 0)
    assert caplog.text.count("met a fault: their leases lapse") == 9


def test_a_task_that_may_have_killed_its_process_runs_elsewhere_on_a_thread(threads: Threads) -> None:
    suspect = leased("awaited", {}, log=(Run(1, 1, START, START, Ending.RELEASE, DIED),))
    ran: list[str] = []

    def elsewhere(task: Task) -> Settlement:
        ran.append(threading.current_thread().name)
        return Settlement.of(task, Ending.DROP)

    batches = batches_of(runner_of(lambda _task: asyncio.sleep(0), elsewhere=elsewhere), threads)
    batches.begin(SHARD, [suspect], {}, 1)
    assert [end.ending for end in gathered(batches, 1)] == [Ending.DROP]
    assert ran
    assert ON_LOOP not in ran


# Typed kinds and the test kit.


def test_a_typed_kind_has_an_async_handler() -> None:
    report: Kind[dict[str, int], int] = Kind("report", payload=dict[str, int], result=int)

    @report.handler
    async def count(task: Task[dict[str, int]]) -> int:
        await asyncio.sleep(0)
        return task.payload["n"] + 1

    assert (count.kind, count.__name__) == ("report", "count")
    assert run(count, make_task(payload={"n": 1})).outcome == Done(2)
    wrong = run(count, make_task(payload={"n": "x"})).outcome
    assert isinstance(wrong, Drop)
    assert "payload.n" in wrong.reason


def test_the_test_kit_runs_one_task() -> None:
    async def saving(task: Task) -> Again:
        await asyncio.to_thread(save, task, {"at": task.attempt})
        return Again(after="PT1M")

    ran = run(saving, make_task(attempt=2))
    assert (ran.outcome, ran.saved) == (Again(after="PT1M"), ({"at": 2},))
    with pytest.raises(LookupError):
        run(handler, make_task(payload={"do": "raise"}))


async def chain(task: Task) -> Outcome:
    """Come again each minute, three times."""
    await asyncio.sleep(0)
    return Done(task.state) if task.state == 3 else Again(after="PT1M", state=(task.state or 0) + 1)


def travel() -> tuple[Any, int]:
    with Duecourse() as duecourse:
        duecourse.handle("chain", chain)
        duecourse.add("chain", {}, id="a")
        duecourse.advance("PT1H")
        [task] = duecourse.tasks()
        return task.result, task.run


def test_the_test_kit_runs_async_handlers_in_travelled_time() -> None:
    assert travel() == (3, 4)


def test_so_it_does_within_an_event_loop_of_the_tests_own() -> None:
    async def test() -> tuple[Any, int]:
        return travel()

    assert asyncio.run(test()) == (3, 4)


def test_the_lease_of_a_claimed_task_is_extended_at_once_beside_the_loop_if_it_is_short(ledger: EmbeddedLedger) -> None:
    class NotingLedger:
        def __init__(self) -> None:
            self.threads = list[str]()

        def shard_of(self, *_: object) -> Any:
            return SHARD

        def extend(self, *_: object, **__: object) -> list[int]:
            self.threads.append(threading.current_thread().name)
            return [1]

    ledger, task = NotingLedger(), claim_one(ledger, "a")
    extender = LeaseExtender(ledger, step_ms=10 * 60_000)  # type: ignore[arg-type]

    async def run() -> None:
        async with extender.while_running(task):
            assert extender._running
        assert not extender._running

    LOOP.run(run)
    assert len(ledger.threads) == 1
    assert ON_LOOP not in ledger.threads
