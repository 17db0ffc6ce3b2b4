"""The saved requests of a worker outside, replayed under a lease that holds."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from duecourse.base.times import format_instant
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Delivery
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import MAX_RESULT_BYTES, MAX_STATE_BYTES, Shard, Status, Task
from tests.support.clock import HandClock
from tests.support.engine import Table
from tests.support.functions import invoke, saved
from tests.support.ledger import LEASE_MS, SHARD, claim, claim_one, new, stored_task
from tests.support.wired import Wire

ID = "order-7:paid"


@pytest.fixture
def task(ledger: EmbeddedLedger) -> Task:
    return claim_one(ledger, ID)


@pytest.fixture
def table(ledger: EmbeddedLedger, wire: Wire) -> Table:
    results = Table()
    wire(ledger=ledger, results=results)
    return results


def send(case: str, token: str, **fields: Any) -> tuple[int, Any]:
    """The status and document of a saved request under `token`, some of its fields changed."""
    event = saved(f"enqueue_http/{case}")
    event["body"] = json.dumps(json.loads(event["body"]) | {"token": token} | fields)
    answer = invoke("enqueue_http", event)
    return answer["statusCode"], json.loads(answer["body"]) if answer.get("body") else {}


def wrong(case: str, **fields: Any) -> dict[str, str]:
    status, problem = send(case, **{"token": "0000000000070011223344556677", **fields})
    assert status == 422
    return {error["field"]: error["problem"] for error in problem["errors"]}


def test_done_ends_the_task_with_its_result(ledger: EmbeddedLedger, task: Task) -> None:
    assert send("settle_done", task.token) == (200, {"settled": "done"})
    after = stored_task(ledger, ID)
    assert (after.status, after.result, after.history[-1].outcome) == (Status.DONE, {"paid": True}, "done")


def test_again_spends_no_attempt_and_comes_back_when_it_said_with_its_state(ledger: EmbeddedLedger, task: Task) -> None:
    assert send("settle_again", task.token) == (200, {"settled": "again"})
    after = stored_task(ledger, ID)
    assert (after.status, after.attempt, after.state) == (Status.SCHEDULED, 1, {"page": 7})
    assert after.due_at == ledger.now() + 30_000


def test_again_may_name_an_instant(ledger: EmbeddedLedger, task: Task) -> None:
    at = datetime.fromtimestamp((ledger.now() + 90_000) / 1000, UTC).isoformat()
    again = {"token": task.token, "outcome": "again", "at": at}
    assert send("settle_stale", **again) == (200, {"settled": "again"})
    assert stored_task(ledger, ID).due_at == ledger.now() + 90_000


def test_a_retry_waits_by_the_tasks_own_backoff_and_dies_at_its_last_attempt(
    ledger: EmbeddedLedger, clock: HandClock, task: Task
) -> None:
    for attempt, wait in ((1, 1_000), (2, 2_000)):
        assert send("settle_retry", task.token) == (200, {"settled": "retried"})
        after = stored_task(ledger, ID)
        assert (after.attempt, after.due_at - ledger.now()) == (attempt + 1, wait)
        assert after.error == "the bank is closed"
        clock.advance(wait)
        (task,) = claim(ledger)
    assert send("settle_retry", task.token) == (200, {"settled": "dead"})
    assert stored_task(ledger, ID).status is Status.DEAD


def test_a_retry_may_say_when(ledger: EmbeddedLedger, task: Task) -> None:
    assert send("settle_retry", task.token, after=45)[1] == {"settled": "retried"}
    assert stored_task(ledger, ID).due_at == ledger.now() + 45_000


def test_a_dropped_task_is_dead_with_its_reason(ledger: EmbeddedLedger, task: Task) -> None:
    assert send("settle_drop", task.token) == (200, {"settled": "dead"})
    assert (stored_task(ledger, ID).status, stored_task(ledger, ID).error) == (Status.DEAD, "no such order")


@pytest.mark.parametrize("case", ["settle_done", "settle_again", "settle_retry", "settle_drop"])
def test_the_same_settle_again_is_answered_the_same(ledger: EmbeddedLedger, task: Task, case: str) -> None:
    first = send(case, task.token)
    stands = stored_task(ledger, ID)
    assert (send(case, task.token), stored_task(ledger, ID)) == (first, stands)


def test_another_settle_after_the_first_is_stale(task: Task) -> None:
    send("settle_done", task.token)
    status, problem = send("settle_drop", task.token)
    assert (status, problem["reason"]) == (409, "stale")


def test_a_lapsed_lease_settles_nothing(ledger: EmbeddedLedger, clock: HandClock, task: Task) -> None:
    clock.advance(LEASE_MS + 1)
    (later,) = claim(ledger)
    for case in ("settle_done", "extend_lease", "save_state"):
        assert send(case, task.token)[1]["reason"] == "stale"
    assert stored_task(ledger, ID).token == later.token
    assert stored_task(ledger, ID).state is None


def test_a_result_goes_to_the_results_table_and_is_shown(table: Table, ledger: EmbeddedLedger, task: Task) -> None:
    send("settle_done", task.token)
    assert table.results[ID].value == '{"paid":true}'
    assert table.results[ID].fence == task.fence
    assert (stored_task(ledger, ID).kept_at, stored_task(ledger, ID).result) == (table.place, None)


def test_a_settle_that_is_too_late_leaves_the_kept_result_alone(table: Table, task: Task) -> None:
    send("settle_done", task.token)
    assert send("settle_done", task.token, result="another") == (200, {"settled": "done"})
    assert table.results[ID].value == '{"paid":true}'


def test_a_result_that_cannot_be_kept_gives_the_task_back_unspent(
    table: Table, ledger: EmbeddedLedger, task: Task
) -> None:
    table.away = True
    assert send("settle_done", task.token) == (200, {"settled": "released"})
    after = stored_task(ledger, ID)
    assert (after.status, after.attempt) == (Status.SCHEDULED, 1)


def test_an_extended_lease_outlasts_its_first_end(ledger: EmbeddedLedger, clock: HandClock, task: Task) -> None:
    status, answer = send("extend_lease", task.token)
    ends = datetime.fromisoformat(answer["expires_at"])
    assert (status, round(ends.timestamp() * 1000)) == (200, ledger.now() + 300_000)
    clock.advance(LEASE_MS + 1)
    assert claim(ledger) == []
    assert send("settle_done", task.token)[0] == 200


def test_what_was_saved_is_the_next_runs_state(ledger: EmbeddedLedger, clock: HandClock, task: Task) -> None:
    assert send("save_state", task.token) == (204, {})
    clock.advance(LEASE_MS + 1)
    (again,) = claim(ledger)
    assert again.state == {"page": 7}


def test_every_wrong_field_of_a_settle_is_named() -> None:
    assert wrong("bad_settle", token="none").keys() == {"token", "outcome", "after"}
    assert wrong("bad_settle_fields").keys() == {"reason", "after"}
    assert wrong("settle_drop", reason="") == {"reason": "is required: the reason why the task can never succeed"}
    assert wrong("settle_again", at="2100-01-01T00:00:00Z").keys() == {"after", "at"}
    assert wrong("settle_done", colour="green") == {"colour": "is not a known field"}
    for time in ("soon", "PT0.5S", "P2D", -1):
        assert wrong("extend_lease", **{"for": time}).keys() == {"for"}
    assert wrong("settle_retry", error="x" * 10_001).keys() == {"error"}


@pytest.mark.parametrize("token", ["", "7.0011223344556677", "0" * 27, "0" * 29, "g" * 28, "A" * 28, "²" * 28, 7, None])
def test_a_token_that_cannot_be_one_is_named(token: Any) -> None:
    assert wrong("settle_done", token=token).keys() == {"token"}


def test_a_result_or_a_state_that_is_too_large_is_refused_and_the_lease_stays(
    ledger: EmbeddedLedger, task: Task
) -> None:
    assert wrong("settle_done", token=task.token, result="x" * MAX_RESULT_BYTES) == {
        "result": "must be at most 64 KiB of JSON"
    }
    assert wrong("settle_again", token=task.token, state="x" * MAX_STATE_BYTES).keys() == {"state"}
    assert wrong("save_state", token=task.token, state="x" * MAX_STATE_BYTES).keys() == {"state"}
    assert stored_task(ledger, ID) == task


@pytest.mark.parametrize(
    ("case", "field"), [("settle_done", "result"), ("settle_again", "state"), ("save_state", "state")]
)
def test_what_no_json_can_carry_is_refused_and_the_lease_stays(
    ledger: EmbeddedLedger, task: Task, case: str, field: str
) -> None:
    carried = "holds a number or a text that JSON cannot carry"
    assert wrong(case, token=task.token, **{field: "\ud800"}) == {field: carried}
    deep: Any = 1
    for _ in range(102):
        deep = [deep]
    assert wrong(case, token=task.token, **{field: deep}) == {field: "must not nest deeper than 100"}
    assert stored_task(ledger, ID) == task


def test_a_task_is_settled_in_the_queue_that_was_named(ledger: EmbeddedLedger, task: Task) -> None:
    event = saved("enqueue_http/settle_done") | {"queryStringParameters": {"queue": "other"}}
    event["body"] = json.dumps({"token": task.token, "outcome": "done"})
    assert invoke("enqueue_http", event)["statusCode"] == 404
    assert stored_task(ledger, ID).status is Status.LEASED


def test_of_many_shards_it_is_the_tasks_own_that_keeps_and_ends_its_lease(clock: HandClock, wire: Wire) -> None:
    sharding = Sharding({"default": 8})
    ledger = EmbeddedLedger(clock, sharding)
    wire(ledger=ledger)
    ledger.add([new(ID, group="order-8")])
    shard = ledger.shard_of("default", ID, "order-8")
    assert shard not in (Shard("default"), ledger.shard_of("default", ID)), "else this shows nothing"
    (task,) = ledger.claim(shard, 1, lease_ms=LEASE_MS).tasks
    assert [send(case, task.token)[0] for case in ("extend_lease", "save_state", "settle_done")] == [200, 204, 200]
    assert ledger.get("default", ID).status is Status.DONE


def handed_over(ledger: EmbeddedLedger) -> Task:
    ledger.add([new(ID, kind="report")])
    [task] = ledger.claim(
        SHARD, 1, lease_ms=LEASE_MS, deliveries={"report": Delivery("lambda:report", 1, 600_000)}
    ).tasks
    return task


def test_a_function_begins_what_it_was_handed_and_settles_it_by_the_new_token(ledger: EmbeddedLedger) -> None:
    task = handed_over(ledger)
    status, begun = send("begin_task", task.token)
    assert status == 200
    assert begun == {
        "token": begun["token"],
        "expires_at": format_instant(ledger.now() + 30_000),
        "run": 1,
        "attempt": 1,
    }
    assert send("settle_done", task.token)[0] == 409
    assert send("settle_done", begun["token"]) == (200, {"settled": "done"})


def test_the_same_worker_is_answered_as_before_and_another_is_not(ledger: EmbeddedLedger) -> None:
    task = handed_over(ledger)
    first = send("begin_task", task.token)
    assert send("begin_task", task.token) == first
    status, problem = send("begin_task", task.token, worker="another")
    assert (status, problem["reason"]) == (409, "stale")
    assert send("begin_task", task.token, worker="")[0] == 409


def test_a_lease_of_no_length_given_is_as_long_as_any(ledger: EmbeddedLedger) -> None:
    task = handed_over(ledger)
    assert send("begin_task", task.token, **{"for": None})[1]["expires_at"] == format_instant(ledger.now() + 90_000)


def test_what_is_begun_must_be_in_order() -> None:
    assert wrong("begin_task", worker="x" * 129).keys() == {"worker"}
    assert wrong("begin_task", token="1").keys() == {"token"}
