"""The storm's verdict passes an honest ledger and finds each thing that can go wrong; a seed is one plan."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duecourse import Again, Client, Done, Drop, Retry, Task
from duecourse.base.times import parse_instant
from duecourse.testing import Duecourse
from tests.support.redis_server import RedisServer
from tests.whole.storm.book import Answer, Book, ClientRequest, Ran, Received
from tests.whole.storm.emptied import empty, left
from tests.whole.storm.plan import LONG, Plan, Size, Stage, Step, drawn
from tests.whole.storm.report import main as report
from tests.whole.storm.report import write
from tests.whole.storm.run import Outcome
from tests.whole.storm.verdict import Judge, Verdict, earliest_due, judge_gate, possible

QUEUE = "default"


class Story:
    """A ledger in memory, the book of what was asked of it, and the file of what ran; all of it honest so far."""

    def __init__(self, product: Duecourse, folder: Path) -> None:
        self.product, self.client = product, product.client
        self._log = folder / "ran.jsonl"
        self.book = Book(self._log)
        self.kinds: dict[str, str] = {}
        self.steps: list[Step] = []
        self.faults: list[tuple[str, int, int]] = []
        self.killed: dict[int, int] = {}
        self.stopped: dict[int, int] = {}
        self.frozen: list[tuple[int, int, int]] = []
        self.mails: Counter[str] = Counter()
        for kind in ("w.quick", "w.killer", "w.tick"):
            product.handle(kind, self._work)

    @property
    def now(self) -> int:
        return parse_instant(self.product.now)

    def add(self, id: str, kind: str = "w.quick", v: int = 1, delay: int = 0, **more: Any) -> None:
        """Add a task, acknowledged."""
        due_at = self.now + delay * 1_000
        payload: Any = {"v": v}
        if kind == "webhook":
            payload = {"url": f"https://example.com/{id}", "body": {"v": v}}
        elif kind == "poll":
            payload = {"url": f"https://example.com/{id}/{v}/poll", "interval": 1, "until": "ready"}
        self.client.add(kind, payload, id=id, queue=QUEUE, delay=delay, **more)
        self.kinds[f"{QUEUE}/{id}"] = kind
        self.note("replace" if more.get("on_duplicate") else "add", id, v=v, due_at=due_at)

    def schedule(self, id: str, limit: int) -> None:
        """Add a schedule that comes each ten seconds, acknowledged."""
        self.client.schedules.add(
            id=id, queue=QUEUE, kind="w.tick", payload={"v": 1}, repeat={"every": 10}, limit=limit
        )
        self.steps.append(Step(0, 0, "schedule", id, QUEUE, {"kind": "w.tick", "every": 10, "limit": limit}))
        self.note("schedule", id)

    def note(self, verb: str, id: str, answer: Answer = Answer.YES, queue: str = QUEUE, **more: Any) -> None:
        """Keep that a client asked for it now."""
        self.book.note(ClientRequest(verb, queue, id, self.now, self.now, answer, **more))

    def ran(self, task: Task, *, begin: int = 0, end: int | None = 5, outcome: str = "Done", **other: Any) -> None:
        """Keep a run: `begin` and `end` are ms from now, `other` is what the task does not say itself."""
        said = {
            "id": task.id, "queue": task.queue, "kind": task.kind, "v": task.payload.get("v"), "run": task.run,
            "attempt": task.attempt, "fence": task.fence, "due": task.due_at, "pid": 1, **other,
        }  # fmt: skip
        lines = [{**said, "what": "begin", "at": self.now + begin}]
        if end is not None:
            lines.append({**said, "what": "end", "at": self.now + end, "outcome": outcome})
        with self._log.open("a") as log:
            log.writelines(json.dumps(line) + "\n" for line in lines)

    def goes_ahead(self) -> None:
        """Keep that the server's clock was ahead for some seconds around now."""
        self.faults.append(("clock-ahead", self.now - 5_000, self.now + 5_000))

    def receive(self, id: str, v: int = 1, queue: str = QUEUE) -> None:
        """Keep that a receiver saw it now."""
        self.book.receive(Received(f"{queue}/{id}", self.now, v, 0))

    def judge(self, stage: Stage = Stage.ALONE) -> Judge:
        """The judge of this ledger and this book."""
        plan = Plan(1, stage, Size(0, 0, 0), tuple(self.steps), (), self.kinds)
        return Judge(plan, self.book, self.client, self.faults, self.mails, self.killed, self.stopped, self.frozen)

    def verdict(self) -> Verdict:
        """What the judge finds."""
        return self.judge().judge()

    def wrong(self) -> str:
        """The one thing that is wrong; "" for none."""
        found = self.verdict().wrong
        assert len(found) <= 1, found
        return found[0] if found else ""

    def _work(self, task: Task) -> Done | Again | Retry:
        if task.kind == "w.killer":
            self.ran(task, end=None)
            return Retry(after=1, error="its process died")
        self.ran(task, begin=10, end=15)
        return Done({"fence": task.fence, "v": task.payload["v"]})


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with Duecourse() as product:
        product.client.set_queue("gate", create=True)
        yield Story(product, tmp_path)


def test_an_honest_ledger_is_passed_with_each_task_and_occurrence_counted(story: Story) -> None:
    story.add("a")
    story.add("killer", "w.killer", retry={"max_attempts": 2, "backoff": "PT0.1S"})
    story.schedule("s", limit=2)
    story.product.advance("PT5M")
    verdict = story.verdict()
    assert verdict.wrong == []
    assert (verdict.counts["done"], verdict.counts["dead"], verdict.counts["occurrences"]) == (1, 1, 2)


def test_a_lost_task_is_found(story: Story) -> None:
    story.kinds[f"{QUEUE}/gone"] = "w.quick"
    story.note("add", "gone", v=1, due_at=story.now)
    assert "LOST" in story.wrong()


def test_a_task_that_nobody_knows_of_may_be_there_or_not(story: Story) -> None:
    story.kinds[f"{QUEUE}/perhaps"] = "w.quick"
    story.note("add", "perhaps", Answer.UNKNOWN, v=1, due_at=story.now)
    assert not story.wrong()


def test_a_task_that_is_not_done_at_the_end_is_found(story: Story) -> None:
    story.add("waits", delay=60)
    assert "LATE FOR GOOD" in story.wrong()


def test_a_dead_task_without_a_begun_run_is_found(story: Story) -> None:
    story.product.handle("w.killer", lambda _: Retry(after=1, error="it says so"))
    story.add("killer", "w.killer", retry={"max_attempts": 2, "backoff": "PT0.1S"})
    story.product.advance("PT5M")
    assert "DEAD after 0 runs" in story.wrong()


def test_a_dead_task_that_nothing_was_wrong_with_is_found(story: Story) -> None:
    def fails(task: Task) -> Retry:
        story.ran(task, outcome="Retry")
        return Retry(after=1, error="it says so")

    story.product.handle("w.quick", fails)
    story.add("neighbour", retry={"max_attempts": 2, "backoff": "PT0.1S"})
    story.product.advance("PT5M")
    assert "DEAD, and nothing was wrong with it" in story.wrong()


def test_an_undone_replacement_is_found(story: Story) -> None:
    story.add("a")
    story.product.advance("PT1S")
    story.note("replace", "a", v=2, due_at=story.now)
    assert "UNDONE: it is (1, False)" in story.wrong()


def test_a_run_of_what_was_cancelled_is_found(story: Story) -> None:
    story.add("a", delay=10)
    task = story.client.get("a", QUEUE)
    story.client.cancel("a", QUEUE)
    story.note("cancel", "a")
    story.product.advance("PT20S")
    story.ran(task, run=1, attempt=1, fence=7)
    assert "UNDONE: version 1 ran 20000 ms after cancel" in story.wrong()


def test_a_change_that_was_rejected_changes_nothing(story: Story) -> None:
    story.add("a")
    story.product.advance("PT1S")
    story.note("cancel", "a", Answer.NO, said="Conflict")
    assert not story.wrong()


def test_a_rejected_cancel_lets_the_task_run(story: Story) -> None:
    story.add("a", delay=10)
    story.note("cancel", "a", Answer.NO, said="Conflict")
    story.product.advance("PT20S")
    assert not story.wrong()


def test_a_rejected_add_is_found(story: Story) -> None:
    story.add("a")
    story.product.advance("PT1S")
    story.note("replace", "a", Answer.NO, v=2, said="InvalidInput")
    assert "REJECTED" in story.wrong()


def test_a_run_of_what_was_replaced_is_found(story: Story) -> None:
    story.add("a", delay=10)
    former = story.client.get("a", QUEUE)
    story.add("a", v=2, delay=10, on_duplicate="replace")
    story.product.advance("PT20S")
    assert not story.wrong()
    story.ran(former, run=1, attempt=1, fence=7)
    assert "UNDONE: version 1 ran 20000 ms after replace" in story.wrong()


def test_what_was_cancelled_and_added_again_runs(story: Story) -> None:
    story.add("a", delay=10)
    story.client.cancel("a", QUEUE)
    story.note("cancel", "a")
    story.add("a", delay=10)
    story.product.advance("PT20S")
    assert not story.wrong()


def test_a_dead_task_whose_runs_were_of_another_version_is_found(story: Story) -> None:
    def fails(task: Task) -> Retry:
        story.ran(task, end=None, v=9)
        return Retry(after=1, error="it says so")

    story.product.handle("w.killer", fails)
    story.add("killer", "w.killer", retry={"max_attempts": 2, "backoff": "PT0.1S"})
    story.product.advance("PT5M")
    assert "DEAD after 0 runs" in story.wrong()


def test_a_poll_dies_of_its_deadline_by_the_wrong_clock_alone(story: Story) -> None:
    story.product.answers("https://example.com/p/1/poll", json={"ready": False})
    story.add("p", "poll", deadline="PT10S")
    story.product.advance("PT5M")
    assert "DEAD, and nothing was wrong with it: past its deadline" in story.wrong()
    story.goes_ahead()
    assert not story.wrong()


def test_a_poll_that_a_cancel_deleted_was_dead_by_the_wrong_clock_alone(story: Story) -> None:
    story.kinds[f"{QUEUE}/p"] = "poll"
    story.note("add", "p", v=1, due_at=story.now)
    story.note("cancel", "p")
    assert "LOST" in story.wrong()
    story.goes_ahead()
    assert not story.wrong()
    story.note("move", "p", Answer.NO)
    assert "LOST" in story.wrong(), "a cancel alone deletes what is dead"


def test_the_version_of_a_call_is_that_of_its_payload(story: Story) -> None:
    story.product.answers("https://example.com/a")
    story.product.answers("https://example.com/p/3/poll", json={"ready": True})
    story.add("a", "webhook", v=2)
    story.add("p", "poll", v=3)
    story.product.advance("PT5S")
    story.receive("a", 2)
    story.receive("p", 3)
    assert not story.wrong()


def test_a_deleted_schedule_that_is_there_is_found(story: Story) -> None:
    story.schedule("s", limit=1)
    story.product.advance("PT1M")
    story.note("delete_schedule", "s")
    assert "UNDONE: the schedule was deleted" in story.wrong()


def test_a_lost_schedule_is_found(story: Story) -> None:
    story.schedule("s", limit=1)
    story.client.schedules.delete("s", QUEUE)
    assert "LOST: the schedule" in story.wrong()


def test_a_schedule_that_did_not_fire_is_found(story: Story) -> None:
    story.schedule("s", limit=2)
    assert "LATE FOR GOOD: it fired 0 of 2 times" in story.wrong()


@pytest.mark.parametrize(
    ("resumed", "found"),
    [
        (None, "LATE FOR GOOD"),
        (Answer.NO, "LATE FOR GOOD"),
        (Answer.YES, "UNDONE: paused is True"),
        (Answer.UNKNOWN, ""),
    ],
)
def test_a_schedule_may_be_paused_only_where_its_last_answers_say_so(
    story: Story, resumed: Answer | None, found: str
) -> None:
    story.schedule("s", limit=2)
    story.client.schedules.change("s", QUEUE, paused=True)
    story.note("pause_schedule", "s")
    if resumed:
        story.note("resume_schedule", "s", resumed)
    story.product.advance("PT1M")
    assert found in story.wrong()
    assert bool(story.wrong()) is bool(found)


def test_a_run_that_a_wrong_clock_hands_out_after_a_move_is_not_early(story: Story) -> None:
    story.add("a")
    story.product.advance("PT1S")
    done = story.client.get("a", QUEUE)
    story.note("move", "a", due_at=story.now + 60_000)
    assert not story.wrong()
    story.ran(done, begin=1_000, end=None, run=1, attempt=1, fence=done.result["fence"] - 1)
    assert "EARLY" in story.verdict().wrong[0]
    story.faults.append(("clock-ahead", story.now + 900, story.now + 1_100))
    assert not [one for one in story.verdict().wrong if "EARLY" in one]


def test_an_occurrence_that_did_not_run_is_found(story: Story) -> None:
    story.product.handle("w.tick", lambda _: Done())
    story.schedule("s", limit=1)
    story.product.advance("PT1M")
    assert "0 occurrences ran" in story.wrong()


@pytest.mark.parametrize(
    ("outcome", "found"), [(Drop("no use"), "it is dead"), (Done(), "DONE without a run that ended")]
)
def test_an_occurrence_is_judged_as_any_task(story: Story, outcome: Done | Drop, found: str) -> None:
    def work(task: Task) -> Done | Drop:
        story.ran(task, end=None)
        return outcome

    story.product.handle("w.tick", work)
    story.schedule("s", limit=1)
    story.product.advance("PT1M")
    assert found in story.wrong()


def test_a_further_run_of_an_occurrence_without_a_reason_is_found(story: Story) -> None:
    story.schedule("s", limit=1)
    story.product.advance("PT1M")
    [done] = story.product.tasks(kind="w.tick")
    story.ran(done, run=2, fence=done.result["fence"] - 1)
    assert "DOUBLE without a reason" in story.wrong()


def test_an_occurrence_that_nobody_asked_for_is_found_and_one_whose_answer_was_lost_is_none(story: Story) -> None:
    story.schedule("s", limit=1)
    story.product.advance("PT1M")
    story.client.schedules.run("s", QUEUE)
    story.product.advance("PT1M")
    assert "it fired 1 times, and 2 occurrences ran" in story.wrong()
    story.note("run_schedule", "s", Answer.UNKNOWN)
    assert not story.wrong()


def test_an_occurrence_of_a_definition_that_was_changed_before_is_found(story: Story) -> None:
    story.schedule("s", limit=3)
    story.product.advance("PT15S")
    story.note("change_schedule", "s", v=2)
    story.product.advance("PT1M")
    assert "UNDONE: version 1 ran after the change" in story.verdict().wrong[0]
    story.faults.append(("clock-back", story.now - 60_000, story.now))
    assert not story.wrong(), "its due time is of another clock"
    story.faults[:] = [("clock-back", story.now - 60_000, story.now - 50_000)]
    assert not story.wrong(), "the wrong clock had added it"
    story.faults[:] = [("clock-back", story.now - 80_000, story.now - 70_000)]
    assert "UNDONE" in story.verdict().wrong[0]


def test_an_occurrence_by_hand_that_did_not_run_is_found(story: Story) -> None:
    story.schedule("s", limit=1)
    story.product.advance("PT1M")
    story.note("run_schedule", "s", said="s@2026-01-01T00:00:00Z")
    assert any("LOST" in one for one in story.verdict().wrong)


def test_an_effect_under_a_stale_lease_is_found(story: Story) -> None:
    story.add("a")
    story.product.advance("PT1S")
    done = story.client.get("a", QUEUE)
    story.ran(done, begin=10, end=20, run=2, attempt=2, fence=done.result["fence"] + 1)
    story.faults.append(("clock-ahead", story.now - 5_000, story.now + 5_000))  # a reason for the further run
    assert "STALE" in story.wrong()
    story.faults.append(("primary-frozen", story.now - 5_000, story.now + 5))
    assert "STALE" in story.wrong()
    story.faults.append(("primary-frozen", story.now - 5_000, story.now + 10))
    assert not story.wrong()


def test_a_task_that_is_done_and_never_ended_is_found(story: Story) -> None:
    story.product.handle("w.quick", lambda task: Done({"fence": task.fence, "v": 1}))
    story.add("a")
    story.product.advance("PT1S")
    assert "DONE without a run that ended" in story.wrong()


def test_a_further_run_without_a_reason_is_found(story: Story) -> None:
    story.add("a")
    story.product.advance("PT1S")
    done = story.client.get("a", QUEUE)
    story.ran(done, begin=-999, end=-995, run=0, fence=done.result["fence"] - 1)
    assert "DOUBLE without a reason" in story.wrong()


def test_a_further_run_has_its_reason_where_the_first_one_never_ended(story: Story) -> None:
    story.add("a")
    story.product.advance("PT1S")
    done = story.client.get("a", QUEUE)
    story.ran(done, begin=-999, end=None, run=0, fence=done.result["fence"] - 1)
    verdict = story.verdict()
    assert (verdict.wrong, verdict.doubles.total()) == ([], 1)


def test_a_further_run_has_its_reason_where_its_process_was_killed_before_the_settle(story: Story) -> None:
    story.add("a")
    story.product.advance("PT1S")
    done = story.client.get("a", QUEUE)
    story.ran(done, begin=-999, end=-995, run=0, fence=done.result["fence"] - 1, pid=7)
    story.killed[7] = story.now - 990
    verdict = story.verdict()
    assert (verdict.wrong, verdict.doubles.total()) == ([], 1)


def test_a_further_run_has_its_reason_where_a_neighbour_ended_its_process(story: Story) -> None:
    story.add("a")
    story.product.advance("PT1S")
    done = story.client.get("a", QUEUE)
    story.ran(done, begin=-999, end=-995, run=0, fence=done.result["fence"] - 1, pid=7)
    story.ran(done, begin=-990, end=None, id="killer", kind="w.killer", pid=7)
    verdict = story.verdict()
    assert (verdict.wrong, verdict.doubles.total()) == ([], 1)


@pytest.mark.parametrize("first", [Answer.UNKNOWN, Answer.YES])
def test_an_add_again_is_rejected_only_where_the_task_died_after_a_lost_answer(story: Story, first: Answer) -> None:
    story.note("add", "killer", first, v=1, due_at=story.now)
    story.add("killer", "w.killer", retry={"max_attempts": 1})
    story.product.advance("PT5M")
    story.note("add", "killer", Answer.NO, v=1, due_at=story.now, said="TaskDead")
    assert ("REJECTED" in story.wrong()) is (first is Answer.YES)


def test_two_runs_under_one_lease_are_found(story: Story) -> None:
    story.add("a")
    story.product.advance("PT1S")
    done = story.client.get("a", QUEUE)
    story.ran(done, begin=-999, end=None, fence=done.result["fence"], pid=2)
    assert any("TWICE under one lease" in one for one in story.verdict().wrong)


def test_an_early_run_is_found(story: Story) -> None:
    story.add("a", delay=10)
    story.ran(story.client.get("a", QUEUE), begin=5_000, end=None, run=0, attempt=1, fence=1)
    story.product.advance("PT20S")
    assert "EARLY: version 1 ran 5000 ms before it was due" in story.wrong()


def test_a_run_that_a_wrong_clock_handed_out_is_not_early_nor_is_what_follows_it(story: Story) -> None:
    story.goes_ahead()
    story.add("a", delay=60)
    for number, begin in enumerate((0, 40_000)):
        story.ran(story.client.get("a", QUEUE), begin=begin, end=None, run=number + 1, attempt=1, fence=number)
    story.product.advance("PT2M")
    assert not story.wrong()


JUST, LONG_BEFORE = 20, -10_000
FAILED = {"history": {1: "retry"}}


@pytest.mark.parametrize(
    ("reason", "before", "given"),
    [
        ("", {"outcome": "Again"}, {}),
        ("its process died or froze", {"ended_at": None, "outcome": None}, {}),
        ("its process died or froze", {"ended_at": 1_001}, {}),
        ("its outcome did not reach the ledger before its lease lapsed", {"outcome": "Again"}, {"lapsed": True}),
        ("its outcome did not reach the ledger before its lease lapsed", {}, {"lapsed": True}),
        ("its process died or froze before its outcome was settled", {}, {"killed": JUST}),
        ("its process died or froze before its outcome was settled", {}, {"frozen": (7, JUST, 1_500)}),
        (None, {}, {"frozen": (7, LONG_BEFORE, 1_500)}),
        (None, {}, {"frozen": (7, JUST, 500)}),
        (None, {}, {"frozen": (8, JUST, 1_500)}),
        (None, {}, {"killed": LONG_BEFORE}),
        (None, {}, {"killed": 60_000}),
        ("its worker was stopped while the store was away", {}, {"stopped": -100, "fault": "redis-killed"}),
        (None, {}, {"stopped": -100, "fault": "process-frozen"}),
        (None, {}, {"stopped": LONG_BEFORE, "fault": "redis-killed"}),
        ("its process froze past its lease before it began", {"run": 3, "fence": 3}, {"history": {2: "lapsed"}}),
        (None, {"run": 3, "fence": 3}, {"history": {2: "done"}}),
        (
            "its function's time was over before the store answered",
            {"kind": "f.quick"},
            FAILED | {"fault": "redis-stalled"},
        ),
        (
            "its function's time was over before the store answered",
            {"kind": "f.quick", "ended_at": -1_500},
            FAILED | {"fault": "redis-stalled"},
        ),
        (None, {"kind": "f.quick", "ended_at": -2_500}, FAILED | {"fault": "redis-stalled"}),
        (None, {"kind": "f.quick"}, FAILED),
        (None, {}, FAILED | {"fault": "redis-stalled"}),
        ("the server's clock was moved past its lease", {}, {"stepped": 1_000}),
        (None, {}, {"stepped": 60_000}),
        ("it was added again after a lost answer", {}, {"adds": 2}),
        ("the server lost the settle by a failover", {}, {"stage": Stage.CLUSTER}),
        (None, {}, {}),
    ],
)
def test_a_further_run_has_the_reason_of_its_case(
    story: Story, reason: str | None, before: dict[str, Any], given: dict[str, Any]
) -> None:
    values: dict[str, Any] = {
        "name": "q/a", "kind": "w.quick", "v": 1, "run": 1, "attempt": 1, "fence": 1, "due_at": 0, "pid": 7,
        "began_at": 0, "ended_at": 10, "outcome": "Done",
    }  # fmt: skip
    if at := given.get("killed"):
        story.killed[7] = at
    if at := given.get("stepped"):
        story.faults.append(("clock-back", at, at))
    story.frozen += [given["frozen"]] if "frozen" in given else []
    if at := given.get("stopped"):
        story.stopped[7] = at
    if name := given.get("fault"):
        story.faults.append((name, 0, 1_000))
    judge = story.judge(given.get("stage", Stage.ALONE))
    history = given.get("history") or {1: "lapsed" if given.get("lapsed") else "done"}
    after = Ran(**values | {"run": 2, "fence": 2, "began_at": 1_000})
    assert judge._reason(Ran(**values | before), after, history, given.get("adds", 1)) == reason


def test_the_earliest_due_time_is_of_what_may_have_been_known_when_the_run_began() -> None:
    def asked(verb: str, due_at: int, answer: Answer = Answer.YES, v: int = 0, at: int = 0) -> ClientRequest:
        return ClientRequest(verb, QUEUE, "a", at, at, answer, v, due_at)

    run = Ran("q/a", "w.quick", 1, 1, 1, 1, 0, 1, 100, None, None)
    added = asked("add", 50, v=1)
    assert earliest_due([added], run) == 50
    assert earliest_due([added, asked("move", 90)], run) == 90
    assert earliest_due([added, asked("move", 90, Answer.UNKNOWN)], run) == 50
    assert earliest_due([added, asked("move", 20, Answer.NO)], run) == 50
    assert earliest_due([added, asked("move", 20, at=200)], run) == 50
    assert earliest_due([added, asked("replace", 20, v=2)], run) == 50


def test_a_webhook_that_is_done_and_never_came_is_found(story: Story) -> None:
    story.product.answers("https://example.com/a")
    story.add("a", "webhook")
    story.product.advance("PT1S")
    assert "LOST outside" in story.wrong()


def test_a_webhook_that_came_more_often_than_it_ran_is_found(story: Story) -> None:
    story.product.answers("https://example.com/a")
    story.add("a", "webhook")
    story.product.advance("PT1S")
    for _ in range(2):
        story.receive("a")
    assert "DOUBLE outside" in story.wrong()
    story.faults.append(("primary-killed", story.now - 5, story.now))
    assert not story.wrong()


def test_a_queue_that_is_paused_against_the_last_answer_is_found(story: Story) -> None:
    for verb in ("pause", "resume"):
        story.book.note(ClientRequest(verb, "gate", "gate", story.now, story.now, Answer.YES))
    story.client.set_queue("gate", paused=True)
    assert "UNDONE: paused is True" in judge_gate(story.book, story.client)[0]


def test_a_queue_may_be_paused_by_a_request_whose_answer_was_lost(story: Story) -> None:
    story.note("pause", "gate", Answer.UNKNOWN, "gate")
    story.client.set_queue("gate", paused=True)
    assert judge_gate(story.book, story.client) == []


def test_a_reminder_has_a_mail_for_each_person_unless_it_began_by_the_wrong_clock(story: Story) -> None:
    story.steps.append(Step(0, 0, "remind", "r", "reminders", {"starts": 40}))
    story.note("remind", "r", queue="reminders")
    story.mails["r.ada@example.com"] = 2
    assert "LOST: [2, 0] mails came" in story.wrong()
    story.goes_ahead()
    assert not story.wrong()
    story.faults.clear()
    for began, ended, is_found in ((11_000, 39_000, False), (20_000, 39_000, True), (11_000, 30_000, True)):
        story.faults.append(("redis-stalled", story.now + began, story.now + ended))
        assert ("LOST" in story.wrong()) is is_found
        story.faults.clear()
    for gap, is_found in ((2_000, False), (9_000, True)):
        story.faults.append(("redis-stalled", story.now + 11_000, story.now + 25_000))
        story.faults.append(("bytes-held", story.now + 25_000 + gap, story.now + 39_000))
        assert ("LOST" in story.wrong()) is is_found
        story.faults.clear()
    story.mails["r.max@example.com"] = 1
    verdict = story.verdict()
    assert (verdict.wrong, dict(verdict.doubles)) == ([], {"a mail was sent again": 1})


@pytest.mark.parametrize("starts", [40, 20], ids=["cancelled before it was due", "cancelled later"])
def test_a_mail_of_a_cancelled_reminder_is_found_unless_it_was_due_before(story: Story, starts: int) -> None:
    story.steps.append(Step(0, 0, "remind", "r", "reminders", {"starts": starts}))
    story.note("remind", "r", queue="reminders")
    story.note("cancel_reminder", "r", queue="reminders")
    assert not story.wrong()
    story.mails["r.max@example.com"] = 1
    assert ("UNDONE: it was cancelled, and [0, 1] mails came" in story.wrong()) is (starts == 40)


def test_a_query_that_was_never_received_or_was_rejected_is_found(story: Story) -> None:
    story.note("query", "x", queue="queries", said="200")
    assert "received 0" in story.wrong()
    story.receive("x", queue="queries")
    assert not story.wrong()
    story.note("query", "x", Answer.NO, "queries", said="InvalidInput")
    assert "REJECTED" in story.wrong()


def test_a_query_is_done_at_the_end_or_failed_by_the_wrong_clock(story: Story) -> None:
    url = "https://example.com/x/1/poll"
    for failed in (False, True):
        story.product.answers(url, json={"ready": False, "failed": failed})
    asked = story.client.query(url=url, interval=1, until="ready", failed_when="failed")
    story.note("query", "x", queue="queries", said=asked.id)
    story.receive("x", queue="queries")
    assert "is processing" in story.wrong()
    story.product.advance("PT5M")
    assert "is failed" in story.wrong()
    story.faults.append(("clock-ahead", 0, story.now))
    assert not story.wrong()


def test_an_unknown_answer_may_have_made_its_change_or_not() -> None:
    def asked(verb: str, answer: Answer, v: int = 0) -> ClientRequest:
        return ClientRequest(verb, QUEUE, "a", 0, 0, answer, v)

    yes, unknown = Answer.YES, Answer.UNKNOWN
    assert possible([asked("add", yes, 1), asked("replace", unknown, 2)]) == {(1, False), (2, False)}
    assert possible([asked("add", yes, 1), asked("cancel", unknown), asked("cancel", yes)]) == {(1, True)}
    assert possible([asked("add", unknown, 1), asked("cancel", unknown)]) == {(0, False), (1, False), (1, True)}


def test_a_key_and_a_field_that_an_emptied_ledger_should_not_have_are_found(server: RedisServer) -> None:
    with Client(server.url) as client, server.client() as redis:
        client.add("webhook", {"url": "https://example.com"}, id="a", queue=QUEUE, delay=60)
        client.cancel("a", QUEUE)
        empty(client)
        redis.set("duecourse:{canary/b1}:bell", "1", px=60_000)
        assert left(redis) == []
        redis.set("duecourse:{default/0}:stray", "1")
        redis.set("duecourse:{canary/b2}:bell", "stray")
        redis.hset(next(iter(redis.scan_iter("*}:meta"))), "stray", "1")
        assert len(left(redis)) == 3


@pytest.mark.parametrize("stage", Stage)
def test_the_same_seed_is_the_same_plan_and_another_is_another(stage: Stage) -> None:
    size = Size(300, 60, 60)
    assert drawn(7, stage, size) == drawn(7, stage, size)
    assert drawn(7, stage, size).steps != drawn(8, stage, size).steps


def test_a_plan_has_every_kind_every_verb_and_all_faults_that_fit() -> None:
    plan = drawn(7, Stage.ALONE, Size(2_000, 300, 400))
    verbs = {step.verb for step in plan.steps}
    assert {"add", "replace", "move", "cancel", "batch", "pause", "resume", "remind", "cancel_reminder"} <= verbs
    assert {"schedule", "change_schedule", "run_schedule", "pause_schedule", "delete_schedule", "query"} <= verbs
    assert set(plan.kinds.values()) >= {"w.killer", "f.quick", "webhook", "poll", "to-sqs", "to-rabbit"}
    assert {fault.name for fault in plan.faults} > LONG


def test_a_report_has_a_row_for_each_storm_and_each_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (8, 7):
        verdict = Verdict(["UNDONE"] * (seed - 7), Counter({"it died": seed}), Counter(tasks=9, occurrences=4))
        verdict.late = [(0, ms) for ms in range(1, 2_001)]
        plan = Plan(seed, Stage.ALONE, Size(9, 1, 1), (), (), {})
        folder = tmp_path / str(seed)
        folder.mkdir()
        write(Outcome(plan, verdict, 0, (("redis-killed", 0, 1),), 0.5), folder)
    report([str(tmp_path)])
    rows = capsys.readouterr().out.splitlines()
    assert rows[2:4] == [
        "| 7 | alone | 9 | 4 | 1 | 1.0 s, 2.0 s, 2.0 s | 7 | 0 |",
        "| 8 | alone | 9 | 4 | 1 | 1.0 s, 2.0 s, 2.0 s | 8 | 1 |",
    ]
    assert rows[-1] == "| it died | 15 |"
