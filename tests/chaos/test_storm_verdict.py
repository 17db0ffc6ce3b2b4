"""The storm's verdict passes an honest ledger and finds each thing that can go wrong; a seed is one plan."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from duecourse import Again, Client, Done, Retry, Task
from duecourse.domain.times import parse_instant
from duecourse.testing import Duecourse
from tests.chaos.storm.book import Answer, Asked, Book, Received
from tests.chaos.storm.emptied import empty, left
from tests.chaos.storm.plan import LONG, Plan, Size, Stage, Step, drawn
from tests.chaos.storm.verdict import Judge, Verdict, judge_gate, possible
from tests.support.redis_server import RedisServer

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

    def note(self, verb: str, id: str, answer: Answer = Answer.YES, **more: Any) -> None:
        """Keep that a client asked for it now."""
        self.book.note(Asked(verb, QUEUE, id, self.now, self.now, answer, **more))

    def ran(self, task: Task, *, begin: int = 0, end: int | None = 5, outcome: str = "Done", **other: int) -> None:
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

    def verdict(self) -> Verdict:
        """What the judge finds."""
        plan = Plan(1, Stage.ALONE, Size(0, 0, 0), tuple(self.steps), (), self.kinds)
        return Judge(plan, self.book, self.client, self.faults, Counter(), self.killed).judge()

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


def test_a_deleted_schedule_that_is_there_is_found(story: Story) -> None:
    story.schedule("s", limit=1)
    story.product.advance("PT1M")
    story.note("delete_schedule", "s")
    assert "UNDONE: the schedule was deleted" in story.wrong()


def test_a_lost_schedule_is_found(story: Story) -> None:
    story.schedule("s", limit=1)
    story.client.schedules.delete("s", QUEUE)
    assert "LOST: the schedule" in story.wrong()


def test_an_occurrence_that_did_not_run_is_found(story: Story) -> None:
    story.product.handle("w.tick", lambda _: Done())
    story.schedule("s", limit=1)
    story.product.advance("PT1M")
    assert "0 occurrences ran" in story.wrong()


def test_an_occurrence_of_a_definition_that_was_changed_before_is_found(story: Story) -> None:
    story.schedule("s", limit=3)
    story.product.advance("PT15S")
    story.note("change_schedule", "s", v=2)
    story.product.advance("PT1M")
    assert "UNDONE: version 1 ran after the change" in story.verdict().wrong[0]


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
        story.book.receive(Received(f"{QUEUE}/a", story.now, 1, 0))
    assert "DOUBLE outside" in story.wrong()


def test_a_queue_that_is_paused_against_the_last_answer_is_found(story: Story) -> None:
    for verb in ("pause", "resume"):
        story.book.note(Asked(verb, "gate", "gate", story.now, story.now, Answer.YES))
    story.client.set_queue("gate", paused=True)
    assert "UNDONE: paused is True" in judge_gate(story.book, story.client)[0]


def test_an_unknown_answer_may_have_made_its_change_or_not() -> None:
    def asked(verb: str, answer: Answer, v: int = 0) -> Asked:
        return Asked(verb, QUEUE, "a", 0, 0, answer, v)

    yes, unknown = Answer.YES, Answer.UNKNOWN
    assert possible([asked("add", yes, 1), asked("replace", unknown, 2)]) == {(1, False), (2, False)}
    assert possible([asked("add", yes, 1), asked("cancel", unknown), asked("cancel", yes)]) == {(1, True)}
    assert possible([asked("add", unknown, 1), asked("cancel", unknown)]) == {(0, False), (1, False), (1, True)}


def test_a_key_and_a_field_that_an_emptied_ledger_should_not_have_are_found(server: RedisServer) -> None:
    with Client(server.url) as client, server.client() as redis:
        client.add("webhook", {"url": "https://example.com"}, id="a", queue=QUEUE, delay=60)
        client.cancel("a", QUEUE)
        empty(client)
        assert left(redis) == []
        redis.set("duecourse:{default/0}:stray", "1")
        redis.hset(next(iter(redis.scan_iter("*}:meta"))), "stray", "1")
        assert [one.endswith("stray") for one in left(redis)] == [True, True]


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
