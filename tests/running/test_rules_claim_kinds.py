"""Claims of some kinds alone: what others run is put aside for them, at no cost to it or to anything behind it."""

from collections.abc import Collection

from duecourse.ledger.operation_types import Claim, Delivery, Move
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import ThrottleReason
from duecourse.ledger.task import Ending, Status, Task
from tests.support.clock import HandClock
from tests.support.ledger import LATER_MS, LEASE_MS, SHARD, ending, new, settle, stored_task

ASIDE_MS = 30_000
"""Time after which a claim looks again at a task of another's kind, unless whoever has the kind claims it before."""


def claim(ledger: Ledger, *kinds: str, limit: int = 100, handed: Collection[str] = ()) -> Claim:
    deliveries = {kind: Delivery(f"lambda:{kind}", 100, LEASE_MS) for kind in handed}
    return ledger.claim(SHARD, limit, lease_ms=LEASE_MS, kinds=kinds, deliveries=deliveries)


def ids(claim: Claim) -> list[str]:
    return [task.id for task in claim.tasks]


def test_only_the_kinds_that_it_names_are_claimed(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a", kind="report"), new("b", kind="mail"), new("c", kind="report")])
    first = claim(ledger, "report", "other")
    assert (ids(first), first.aside, first.backlog, first.died) == (["a", "c"], 1, 0, 0)
    left = stored_task(ledger, "b")
    assert (left.status, left.due_at, left.run, left.attempt, left.log) == (Status.SCHEDULED, clock.at, 0, 1, ())
    assert ids(claim(ledger, "report")) == []


def test_whoever_has_the_kind_claims_it_at_once(ledger: Ledger) -> None:
    ledger.add([new("a", kind="mail")])
    assert ids(claim(ledger, "report")) == []
    assert ids(claim(ledger, "report")) == []
    [task] = claim(ledger, "mail").tasks
    assert (task.run, task.attempt) == (1, 1)
    assert settle(ledger, task, Ending.DONE).value == "done"


def test_so_does_whoever_hands_it_over(ledger: Ledger) -> None:
    ledger.add([new("a", kind="mail")])
    assert ids(claim(ledger, "report")) == []
    [task] = claim(ledger, "report", handed=["mail"]).tasks
    assert task.target == "lambda:mail"


def test_a_claim_that_names_no_kinds_takes_all(ledger: Ledger) -> None:
    ledger.add([new("a", kind="mail"), new("b", kind="report")])
    assert ids(claim(ledger)) == ["a", "b"]


def test_nobody_who_has_the_kind_finds_it_due_later_again_and_again(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a", kind="mail")])
    for _ in range(3):
        got = claim(ledger, "report")
        assert (got.aside, got.bell_at) == (1, clock.at + ASIDE_MS)
        clock.advance(ASIDE_MS)
    assert ids(claim(ledger, "mail")) == ["a"]


def test_tasks_of_another_kind_hold_up_none_behind_them(ledger: Ledger, clock: HandClock) -> None:
    due = clock.at - 10_000
    for part in range(3):
        ledger.add([new(f"m{part}-{n}", kind="mail", due_at=due) for n in range(400)])
    ledger.add([new("own", kind="report")])
    claims, tasks = 0, list[Task]()
    while not tasks:
        tasks, claims = claim(ledger, "report").tasks, claims + 1
        assert claims < 20
    assert [task.id for task in tasks] == ["own"]
    served = 0
    while got := claim(ledger, "mail", limit=500).tasks:
        served += len(got)
        ledger.settle(SHARD, [ending(task, Ending.DONE) for task in got])
    assert served == 1_200


def test_what_was_put_aside_is_a_backlog_until_all_of_it_is_claimed(ledger: Ledger) -> None:
    ledger.add([new(f"m{n}", kind="mail") for n in range(200)])
    while claim(ledger, "report").aside:
        pass
    served, got = 0, claim(ledger, "mail", limit=16)
    while got.backlog:
        served, got = served + len(got.tasks), claim(ledger, "mail", limit=16)
        assert got.tasks
    assert served + len(got.tasks) == 200


def test_what_was_moved_meanwhile_is_due_when_it_was_moved_to(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a", kind="mail"), new("b", kind="mail")])
    claim(ledger, "report")
    ledger.move(SHARD.queue, [Move("a", delay_ms=LATER_MS)])
    ledger.cancel(SHARD.queue, ["b"])
    assert ids(claim(ledger, "mail")) == []
    clock.advance(LATER_MS)
    assert ids(claim(ledger, "mail")) == ["a"]


def test_why_says_that_nobody_had_its_kind(ledger: Ledger) -> None:
    ledger.add([new("a", kind="mail")])
    claim(ledger, "report")
    assert ledger.throttle(SHARD, task=stored_task(ledger, "a")).reason is ThrottleReason.KIND


def test_a_kind_that_was_put_aside_and_a_target_without_room_are_told_apart(ledger: Ledger) -> None:
    full = {"report": Delivery("lambda:report", 1, LEASE_MS)}
    ledger.add([new("a", kind="report"), new("b", kind="report"), new("c", kind="mail")])
    claimed = ledger.claim(SHARD, 100, lease_ms=LEASE_MS, deliveries=full, kinds=["poll"])
    assert (ids(claimed), claimed.aside) == (["a"], 2)
    reasons = [ledger.throttle(SHARD, task=stored_task(ledger, id)).reason for id in "bc"]
    assert reasons == [ThrottleReason.TARGET, ThrottleReason.KIND]
    assert ids(claim(ledger, "mail")) == ["c"]
