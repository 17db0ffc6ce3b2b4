"""Working what was handed over: only under leases that hold, settled as each finishes."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from duecourse.errors import DuecourseError, StoreMisused, StoreUnavailable
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Begun, Delivery, Lease, Settled
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import (
    GRACE_MS,
    STEP_MS,
    Done,
    Drop,
    Ending,
    Outcome,
    Retry,
    RetryPolicy,
    Settlement,
    Shard,
    Status,
    Task,
)
from duecourse.running.received_tasks import LEAST_MS, ReceivedTasks
from duecourse.running.run import MOST_KINDS, Kind, RunTimes
from duecourse.running.task_event import decode_tasks, tasks_event
from tests.support.clock import START, HandClock
from tests.support.engine import Lambda, ample, engine
from tests.support.ledger import SHARD, claim, ending, lease_of, new, stored_task
from tests.support.wait import until


class Lapse(EmbeddedLedger):
    """A ledger that does not take the first settlements, for which it raises `why`."""

    def __init__(self, clock: HandClock, misses: int, why: type[DuecourseError] = StoreUnavailable) -> None:
        super().__init__(clock)
        self.misses = misses
        self.why = why
        self.poison = ""

    def settle(self, shard: Shard, settlements: Sequence[Settlement]) -> list[Settled]:
        self.misses -= 1
        if self.misses >= 0 or any(one.id == self.poison for one in settlements):
            raise self.why
        return super().settle(shard, settlements)


HANDED = {"work": Delivery("lambda:Work", 100, 5_000)}


class Counting(EmbeddedLedger):
    """A ledger that remembers how it was asked to begin and to extend."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.begun: list[int] = []
        self.extended: list[tuple[int, int]] = []
        self.away, self.refused = False, 0
        self.why: type[DuecourseError] = StoreUnavailable

    def begin(
        self, shard: Shard, deliveries: Sequence[Lease], lease_ms: int, nonces: Sequence[bytes], each: int = 0
    ) -> list[Begun]:
        if self.away:
            self.refused += 1
            raise self.why
        self.begun.append(len(deliveries))
        return super().begin(shard, deliveries, lease_ms, nonces, each)

    def extend(self, shard: Shard, leases: Sequence[Lease], lease_ms: int, *, at_least: bool = False) -> list[int]:
        self.extended.append((len(leases), lease_ms))
        return super().extend(shard, leases, lease_ms, at_least=at_least)


class Unheard(EmbeddedLedger):
    """A ledger whose answer to the second begin is lost."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.lost = threading.Event()
        self._begins = 0

    def begin(
        self, shard: Shard, deliveries: Sequence[Lease], lease_ms: int, nonces: Sequence[bytes], each: int = 0
    ) -> list[Begun]:
        begun = super().begin(shard, deliveries, lease_ms, nonces, each)
        self._begins += 1
        if self._begins == 2:
            self.lost.set()
            raise StoreUnavailable
        return begun


def work(
    ledger: EmbeddedLedger,
    kind: Kind,
    tasks: list[Task],
    remaining_ms: int | Callable[[], int] = 20_000,
    *,
    size: int = 4,
    step_ms: int = STEP_MS,
    times: RunTimes | None = None,
) -> dict[str, int]:
    """What became of tasks that came by an invocation."""
    left = remaining_ms if callable(remaining_ms) else lambda: remaining_ms
    with engine(ledger, kind, size=size) as run:
        worker = ReceivedTasks(ledger, run.runner, run.threads, left, step_ms, times=times)
        return worker.work(decode_tasks(tasks_event(tasks)))


def handed(ledger: EmbeddedLedger, *ids: str) -> list[Task]:
    ledger.add([new(id) for id in ids])
    return ledger.claim(SHARD, 100, lease_ms=5_000, deliveries=HANDED).tasks


def leased(ledger: EmbeddedLedger, *ids: str) -> list[Task]:
    ledger.add([new(id, payload='{"n":1}') for id in ids])
    return claim(ledger, lease_ms=5_000)


def meeting(others: threading.Barrier) -> Kind:
    """A kind whose tasks wait for each other."""

    def kind(_task: Task) -> None:
        others.wait()

    return kind


def test_each_task_is_run_and_settled_under_its_own_lease(ledger: EmbeddedLedger) -> None:
    outcomes: dict[str, Outcome] = {"a": Done({"ok": True}), "b": Retry(error="503"), "c": Drop("never")}
    counts = work(ledger, lambda task: outcomes[task.id], leased(ledger, "a", "b", "c"))
    assert {name: count for name, count in counts.items() if count} == {"done": 1, "retried": 1, "dead": 1}
    assert (stored_task(ledger, "a").result, stored_task(ledger, "b").error) == ({"ok": True}, "503")


def test_a_handler_gets_the_task_as_it_was_claimed(ledger: EmbeddedLedger) -> None:
    seen: list[Task] = []
    (task,) = leased(ledger, "a")
    work(ledger, seen.append, [task])
    got = seen[0]
    assert (got.id, got.payload, got.run, got.attempt, got.retry) == ("a", {"n": 1}, 1, 1, task.retry)
    assert got.idempotency_key == task.idempotency_key


@pytest.mark.parametrize("claimed", [leased, handed])
@pytest.mark.parametrize(("left", "lasts"), [(20_000, 20_000 + GRACE_MS), (900_000, STEP_MS), (0, GRACE_MS)])
def test_a_lease_lasts_a_step_and_never_much_longer_than_the_function(
    ledger: EmbeddedLedger, claimed: Callable[..., list[Task]], left: int, lasts: int
) -> None:
    seen: list[Task] = []
    work(ledger, seen.append, claimed(ledger, "a"), remaining_ms=left)
    assert seen[0].lease_expires_at == START + lasts
    assert seen[0].remaining == left / 1_000


def test_what_was_handed_over_is_begun_in_one_call_and_runs_under_a_token_of_its_own(clock: HandClock) -> None:
    ledger = Counting(clock)
    tasks = handed(ledger, "a", "b", "c")
    seen: list[Task] = []
    assert work(ledger, seen.append, tasks)["done"] == 3
    assert (ledger.begun, ledger.extended) == ([3], [])
    assert not {task.token for task in seen} & {task.token for task in tasks}
    assert [run.run for run in stored_task(ledger).history] == [1]


def test_tasks_are_begun_as_threads_become_free(clock: HandClock) -> None:
    ledger = Counting(clock)
    tasks = handed(ledger, *(f"t{n}" for n in range(5)))
    running: list[int] = []

    def kind(_task: Task) -> None:
        begun = sum(not stored_task(ledger, task.id).target for task in tasks)
        running.append(begun - ledger.stats(SHARD).done)  # in this order: another thread may settle in between

    assert work(ledger, kind, tasks, size=2)["done"] == 5
    assert ledger.begun[0] == 2
    assert sum(ledger.begun) == 5
    assert max(running) <= 2


def test_a_second_delivery_of_the_same_event_finds_its_tasks_begun(ledger: EmbeddedLedger) -> None:
    tasks = handed(ledger, "a", "b")
    ran: list[str] = []

    def kind(task: Task) -> None:
        if len(ran) < 2:
            ran.append(task.id)
            assert work(ledger, lambda again: ran.append(again.id), [t for t in tasks if t.id == task.id])["stale"] == 1

    assert work(ledger, kind, tasks)["done"] == 2
    assert sorted(ran) == ["a", "b"]


def test_a_lease_is_kept_alive_in_steps_while_its_handler_runs_up_to_the_functions_timeout(clock: HandClock) -> None:
    ledger = Counting(clock)
    left = iter([900_000, 900_000, 900_000, 100])
    enough = threading.Event()

    def kind(_task: Task) -> None:
        until(lambda: len(ledger.extended) >= 3 or None)
        enough.set()

    work(ledger, kind, handed(ledger, "a", "b"), lambda: next(left, 100), step_ms=6_000 // 100)
    assert enough.is_set()
    assert ledger.extended[0] == (2, 60)
    assert max(ms for _, ms in ledger.extended) <= 60


@pytest.mark.slow
def test_a_lease_that_could_not_be_extended_is_extended_as_soon_as_the_store_is_back(
    clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duecourse.running.received_tasks.AGAIN_S", 0.01)
    step_s, asked = 2.0, list[float]()

    class Away(Counting):
        def extend(self, *given: Any, **options: Any) -> list[int]:
            asked.append(time.monotonic())
            if len(asked) == 1:
                raise StoreUnavailable
            return super().extend(*given, **options)

    ledger = Away(clock)
    work(
        ledger, lambda _task: until(lambda: len(asked) >= 2), handed(ledger, "a"), 900_000, step_ms=int(step_s * 3_000)
    )
    assert asked[1] - asked[0] < step_s, "it waited for the next step"


def test_a_lease_that_its_handler_made_longer_is_not_cut_short(clock: HandClock) -> None:
    ledger, ends = Counting(clock), []

    def kind(task: Task) -> None:
        ends.extend(ledger.extend(SHARD, [lease_of(task)], 600_000))
        until(lambda: len(ledger.extended) >= 3 or None)
        ends.append(stored_task(ledger).lease_expires_at)

    work(ledger, kind, handed(ledger, "a"), 900_000, step_ms=60)
    assert ends == [clock.at + 600_000] * 2


def test_a_lease_is_never_extended_past_its_function(clock: HandClock) -> None:
    ledger = Counting(clock)
    left = iter([900_000])

    def kind(_task: Task) -> None:
        until(lambda: len(ledger.extended) >= 2 or None)

    work(ledger, kind, handed(ledger, "a"), lambda: next(left, 7), step_ms=300)
    assert {ms for _, ms in ledger.extended} == {300}
    ledger.extended.clear()
    work(ledger, kind, handed(ledger, "b"), lambda: next(left, 7 - GRACE_MS), step_ms=60)
    assert {ms for _, ms in ledger.extended} == {7}


def test_what_there_is_no_time_left_to_begin_is_given_back_and_was_no_run(ledger: EmbeddedLedger) -> None:
    left = iter([60_000])
    counts = work(ledger, lambda _task: None, handed(ledger, "a", "b", "c"), lambda: next(left, 500), size=1)
    assert (counts["done"], counts["released"]) == (1, 2)
    given_back = [stored_task(ledger, id) for id in "abc" if stored_task(ledger, id).status is Status.SCHEDULED]
    assert [(task.run, task.attempt) for task in given_back] == [(0, 1)] * 2


def counting_down(clock: HandClock, timeout_ms: int) -> Callable[[], int]:
    """Time left of an invocation that begins now, by the ledger's clock."""
    ends_at = clock.at + timeout_ms
    return lambda: ends_at - clock.at


def taking(clock: HandClock, ms: int) -> Kind:
    """A kind each of whose runs takes so long."""

    def kind(_task: Task) -> None:
        clock.advance(ms)

    return kind


def test_ten_tasks_of_4_s_in_a_function_of_10_s_that_runs_one_at_a_time_are_all_done(
    ledger: EmbeddedLedger, clock: HandClock
) -> None:
    ledger.add([new(f"t{n}", retry=RetryPolicy(max_attempts=1)) for n in range(10)])
    counts, spare = [], []
    while tasks := ledger.claim(SHARD, 10, lease_ms=5_000, deliveries=HANDED).tasks:
        left = counting_down(clock, 10_000)
        done = work(ledger, taking(clock, 4_000), tasks, left, size=1)
        counts.append((done["done"], done["released"]))
        spare.append(left())
    assert counts == [(2, 8), (2, 6), (2, 4), (2, 2), (2, 0)]
    assert min(spare) > 0, "no invocation was cut off"
    assert ledger.stats(SHARD).done == 10


@pytest.mark.parametrize(
    ("takes_ms", "sizes"),
    [(4_000, [10, 2, 2, 2, 2]), (12_000, [10, 9, *[1] * 8]), (10, [10])],  # the first event knows nothing
)
def test_an_event_has_as_many_tasks_as_its_invocation_has_time_for(
    ledger: EmbeddedLedger, clock: HandClock, takes_ms: int, sizes: list[int]
) -> None:
    ledger.add([new(f"t{n}") for n in range(10)])
    function, times = Lambda(), RunTimes()
    with engine(ledger, {}, size=10, targets={"work": "lambda:Work"}, invoker=function) as drains:
        while ledger.stats(SHARD).done < 10:
            seen = len(function.sent)
            drains.drainer.drain([SHARD], ample)
            for _, event in function.sent[seen:]:
                left = counting_down(clock, 10_000)
                work(ledger, taking(clock, takes_ms), decode_tasks(event), left, size=1, times=times)
    assert [len(ids) for ids in function.ids()] == sizes


@pytest.mark.parametrize(("timeout_ms", "takes_ms"), [(1_300, 400), (3_000, 1_200)])
def test_what_waits_behind_a_long_run_is_given_back_before_that_run_ends(
    ledger: EmbeddedLedger, clock: HandClock, timeout_ms: int, takes_ms: int
) -> None:
    def kind(task: Task) -> None:
        assert task.id == "a"
        clock.advance(takes_ms)
        until(lambda: all(stored_task(ledger, id).status is Status.SCHEDULED for id in "bc") or None)

    tasks = sorted(handed(ledger, "a", "b", "c"), key=lambda task: task.id)
    counts = work(ledger, kind, tasks, counting_down(clock, timeout_ms), size=1, step_ms=600_000)
    assert (counts["done"], counts["released"]) == (1, 2)


def test_a_task_whose_kind_takes_longer_than_the_time_left_is_given_back_and_others_run(
    ledger: EmbeddedLedger, clock: HandClock
) -> None:
    deliveries = {kind: Delivery("lambda:Work", 100, 5_000) for kind in ("slow", "quick")}
    ledger.add([new("a", kind="quick"), new("b", kind="slow"), new("c", kind="quick")])
    tasks = sorted(ledger.claim(SHARD, 10, lease_ms=5_000, deliveries=deliveries).tasks, key=lambda task: task.id)
    times = RunTimes()
    times.note("slow", 4_000)
    counts = work(ledger, taking(clock, 10), tasks, counting_down(clock, 5_000), size=1, times=times)
    assert (counts["done"], counts["released"]) == (2, 1)
    assert stored_task(ledger, "b").status is Status.SCHEDULED
    assert times.of("quick") == 10


def test_a_usual_time_grows_at_once_and_falls_slowly() -> None:
    times = RunTimes()
    times.note("a", 8_000)
    times.note("a", 0)
    times.note("b", 100)
    assert (times.of("a"), times.of("b"), times.of("c"), times.longest) == (7_000, 100, 0, 7_000)
    for n in range(MOST_KINDS):
        times.note(f"k{n}", 1)
    assert (times.of("a"), times.of(f"k{MOST_KINDS - 1}")) == (0, 1)


def test_a_usual_time_that_rises_by_a_part_forgets_a_single_long_run() -> None:
    times = RunTimes(rise=8)
    for ms in (80, 880, 80):
        times.note("a", ms)
    assert times.of("a") == 80 + 100 - 100 / 8
    assert (times.of("b"), times.of("b", unknown=5)) == (0, 5)


def test_a_function_with_little_time_begins_what_it_has_threads_for(ledger: EmbeddedLedger) -> None:
    assert work(ledger, lambda _task: None, handed(ledger, "a"), remaining_ms=500)["done"] == 1


def test_a_store_that_is_away_before_anything_began_fails_the_invocation(clock: HandClock) -> None:
    ledger = Counting(clock)
    tasks = handed(ledger, "a")
    ledger.away = True
    with pytest.raises(StoreUnavailable):
        work(ledger, lambda _task: None, tasks, remaining_ms=LEAST_MS + 150)
    assert ledger.refused == 2


@pytest.mark.parametrize("why", [StoreUnavailable, StoreMisused])
def test_a_store_that_is_away_for_a_moment_before_anything_began_is_asked_again(
    clock: HandClock, why: type[DuecourseError]
) -> None:
    class Returning(Counting):
        def begin(self, *given: Any, **more: Any) -> list[Begun]:
            self.away = self.refused < 2
            return super().begin(*given, **more)

    ledger = Returning(clock)
    ledger.why = why
    assert work(ledger, lambda _task: None, handed(ledger, "a", "b"))["done"] == 2


def test_a_store_that_stays_away_is_waited_for_no_longer_than_a_lease(clock: HandClock) -> None:
    ledger = Counting(clock)
    tasks = handed(ledger, "a")
    ledger.away = True
    with pytest.raises(StoreUnavailable):
        work(ledger, lambda _task: None, tasks, step_ms=30)
    assert ledger.refused == 2


@pytest.mark.parametrize("why", [StoreUnavailable, StoreMisused])
def test_a_store_that_begins_nothing_while_others_run_is_asked_again(
    clock: HandClock, why: type[DuecourseError]
) -> None:
    ledger = Counting(clock)
    ledger.why = why

    def kind(task: Task) -> None:
        if task.id == "a":
            ledger.away = True
        elif task.id == "b":
            until(lambda: ledger.refused or None)
            ledger.away = False

    assert work(ledger, kind, handed(ledger, "a", "b", "c"), size=2)["done"] == 3


def test_what_was_begun_by_a_call_whose_answer_was_lost_is_run_all_the_same(clock: HandClock) -> None:
    ledger = Unheard(clock)

    def kind(task: Task) -> None:
        if task.id == "b":
            ledger.lost.wait()

    counts = work(ledger, kind, handed(ledger, "a", "b", "c"), size=2)
    assert (counts["done"], counts["stale"]) == (3, 0)


def test_a_task_that_was_settled_without_a_begin_is_not_run(ledger: EmbeddedLedger) -> None:
    [task] = handed(ledger, "a")
    ledger.settle(SHARD, [ending(task, Ending.DONE)])
    ran: list[Task] = []
    assert work(ledger, ran.append, [task])["stale"] == 1
    assert ran == []


def test_a_late_invocation_does_not_run_what_has_gone_to_another(ledger: EmbeddedLedger, clock: HandClock) -> None:
    late = leased(ledger, "a", "b")
    clock.advance(5_001)
    claim(ledger)
    ran: list[str] = []
    assert work(ledger, lambda task: ran.append(task.id), late)["stale"] == 2
    assert ran == []


def test_a_lease_that_has_lapsed_and_gone_to_nobody_still_holds(ledger: EmbeddedLedger, clock: HandClock) -> None:
    late = leased(ledger, "a")
    clock.advance(60_000)
    assert work(ledger, lambda _task: None, late)["done"] == 1


def test_tasks_of_one_invocation_run_beside_each_other(ledger: EmbeddedLedger) -> None:
    together = threading.Barrier(4, timeout=30)
    counts = work(ledger, meeting(together), leased(ledger, "a", "b", "c", "d"))
    assert counts["done"] == 4


def test_tasks_of_several_queues_go_back_to_their_own(ledger: EmbeddedLedger) -> None:
    ledger.add([new("a"), new("b", queue="other")])
    both = claim(ledger) + ledger.claim(Shard("other"), 1, lease_ms=5_000).tasks
    together = threading.Barrier(2, timeout=30)
    assert work(ledger, meeting(together), both)["done"] == 2
    assert ledger.stats(SHARD).done == ledger.stats(Shard("other")).done == 1


def test_tasks_are_settled_in_their_own_shards_as_their_groups_and_ids_tell(clock: HandClock) -> None:
    ledger = EmbeddedLedger(clock, Sharding({"default": 8}))
    ledger.add([new("a"), new("b"), new("c", group="g"), new("d", group="g")])
    tasks = [task for shard in ledger.shards() for task in ledger.claim(shard, 9, lease_ms=5_000).tasks]
    assert len(ledger.shards()) == 3
    sent = decode_tasks(tasks_event(tasks))
    assert work(ledger, lambda _task: None, sent)["done"] == 4


@pytest.mark.parametrize("why", [StoreUnavailable, StoreMisused])
@pytest.mark.parametrize("misses", [1, 4])
def test_a_settlement_that_is_not_taken_is_tried_again_while_there_is_time(
    clock: HandClock, why: type[DuecourseError], misses: int
) -> None:
    ledger = Lapse(clock, misses, why)
    assert work(ledger, lambda _task: None, leased(ledger, "a", "b"))["done"] == 2


def test_a_settlement_that_is_rejected_holds_up_no_other(clock: HandClock) -> None:
    ledger = Lapse(clock, 0, StoreMisused)
    ledger.poison = "a"
    with pytest.raises(StoreMisused):
        work(ledger, lambda _task: None, leased(ledger, "a", "b"), remaining_ms=LEAST_MS + 50)
    assert stored_task(ledger, "b").status is Status.DONE


def test_a_handler_in_a_function_learns_that_its_task_was_cancelled_by_force(ledger: EmbeddedLedger) -> None:
    told = []

    def kind(task: Task) -> None:
        assert not task.lost
        ledger.cancel("default", ["a"], force=True)
        told.append(task.lost.wait(30))

    assert work(ledger, kind, handed(ledger, "a"), step_ms=30)["stale"] == 1
    assert told == [True]
    assert stored_task(ledger, "a").status is Status.CANCELLED


def test_a_keep_alive_that_is_rejected_drops_no_outcome(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, rejected = EmbeddedLedger(clock), threading.Event()
    tasks = handed(ledger, "a")

    def reject(*_: object, **__: object) -> list[int]:
        rejected.set()
        raise StoreMisused

    monkeypatch.setattr(ledger, "extend", reject)
    assert work(ledger, lambda _task: None if rejected.wait(30) else Drop("too early"), tasks, step_ms=30)["done"] == 1


def test_a_store_that_stays_away_is_told_when_all_have_run(clock: HandClock) -> None:
    ledger = Lapse(clock, misses=99)
    ran: list[str] = []
    with pytest.raises(StoreUnavailable):
        work(ledger, lambda task: ran.append(task.id), leased(ledger, "a", "b"), remaining_ms=LEAST_MS + 50)
    assert sorted(ran) == ["a", "b"]
    assert stored_task(ledger, "a").status is Status.LEASED


def test_no_tasks_are_no_work(ledger: EmbeddedLedger) -> None:
    assert set(work(ledger, lambda _task: None, []).values()) == {0}
