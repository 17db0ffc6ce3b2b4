"""Lambda's records of failed invocations, replayed: what they say is the error of the attempts that they carried."""

import pytest

from duecourse.adapters.embedded.store import MemoryStore
from duecourse.domain.task import Shard, Status, Task
from duecourse.errors import InvalidInput, StoreUnavailable
from duecourse.ports.leases import Delivery
from tests.support.clock import HandClock
from tests.support.functions import cases, invoke, saved
from tests.support.ledger import lease_of, new
from tests.support.wired import Wire

REMINDERS = Shard("reminders")
ID = "standup:300:0"
HANDED = {"reminder": Delivery("lambda:SendReminderFunction", 100, 120_000)}


def hand_over(store: MemoryStore) -> Task:
    """The reminder of the saved events, handed over under the token that they name."""
    store.add([new(ID, kind="reminder", queue="reminders", group="standup")])
    [task] = store.claim(REMINDERS, 1, lease_ms=60_000, deliveries=HANDED).tasks
    return task


def replay(case: str, token: str) -> list[str]:
    """The messages that are to be delivered again, after a saved event whose tasks have this token."""
    event = saved(f"on_undelivered/{case}")
    for record in event["Records"]:
        record["body"] = record["body"].replace("0000000000080011223344556677", token)
    return [failed["itemIdentifier"] for failed in invoke("on_undelivered", event)["batchItemFailures"]]


def standing(store: MemoryStore) -> Task:
    task = store.get("reminders", ID)
    assert task is not None
    return task


def test_every_saved_event_is_replayed_here() -> None:
    assert cases("on_undelivered") == {"timed_out", "cannot_start", "too_old", "some_bad", "bad_shape", "bad_request"}


@pytest.mark.parametrize("begun", [True, False])
def test_a_function_that_timed_out_is_the_error_of_the_attempt(store: MemoryStore, begun: bool) -> None:
    task = hand_over(store)
    if begun:
        store.begin(REMINDERS, [lease_of(task)], 30_000, [bytes(8)])
    assert replay("timed_out", task.token) == []
    after = standing(store)
    assert (after.status, after.run, after.attempt) == (Status.SCHEDULED, 1, 2)
    assert after.error.startswith("duecourse-SendReminderFunction-1A2B3C4D5E6F: RetriesExhausted: ")
    assert after.error.endswith("Task timed out after 30.00 seconds")
    assert 0 <= after.due_at - store.now() <= 1_000


def test_a_function_that_cannot_start_is_the_error_of_the_attempt(store: MemoryStore) -> None:
    assert replay("cannot_start", hand_over(store).token) == []
    assert "Runtime.ImportModuleError: Unable to import module 'app'" in standing(store).error
    assert standing(store).attempt == 2


def test_what_is_retried_waits_by_its_own_backoff(store: MemoryStore) -> None:
    event = saved("on_undelivered/cannot_start")
    [record] = event["Records"]
    body = record["body"].replace("0000000000080011223344556677", hand_over(store).token)
    assert '"jitter": true' in body
    record["body"] = body.replace('"jitter": true', '"jitter": false')
    invoke("on_undelivered", event)
    assert standing(store).due_at == store.now() + 1_000


def test_the_last_attempt_dies_of_it(store: MemoryStore, clock: HandClock) -> None:
    for _ in range(3):
        assert replay("cannot_start", hand_over(store).token) == []
        clock.advance(10_000)
    assert (standing(store).status, standing(store).attempt) == (Status.DEAD, 3)


def test_an_event_that_waited_too_long_spends_no_attempt(store: MemoryStore) -> None:
    assert replay("too_old", hand_over(store).token) == []
    after = standing(store)
    assert (after.status, after.run, after.attempt, after.due_at) == (Status.SCHEDULED, 0, 1, store.now() + 1_000)
    assert after.error == "duecourse-SendReminderFunction-1A2B3C4D5E6F: EventAgeExceeded"


def test_an_event_that_waited_too_long_and_was_begun_all_the_same_is_let_run(store: MemoryStore) -> None:
    task = hand_over(store)
    store.begin(REMINDERS, [lease_of(task)], 30_000, [bytes(8)])
    assert replay("too_old", task.token) == []
    assert standing(store).status is Status.LEASED


def test_a_record_that_is_delivered_again_changes_nothing(store: MemoryStore) -> None:
    task = hand_over(store)
    replay("cannot_start", task.token)
    before = standing(store)
    assert replay("cannot_start", task.token) == []
    assert standing(store) == before


def test_what_is_no_record_of_ours_is_left_for_the_dead_letters_and_the_rest_is_read(store: MemoryStore) -> None:
    task = hand_over(store)
    messages = [record["messageId"] for record in saved("on_undelivered/some_bad")["Records"]]
    assert replay("some_bad", task.token) == messages[:2]
    assert "Runtime.ExitError" in standing(store).error


def test_an_event_of_another_shape_is_refused(store: MemoryStore, wire: Wire) -> None:
    wire(store=store)
    with pytest.raises(InvalidInput):
        invoke("on_undelivered", saved("on_undelivered/bad_shape"))


def test_while_the_store_is_away_all_are_delivered_again(clock: HandClock, wire: Wire) -> None:
    class Away(MemoryStore):
        def settle(self, *_given: object) -> list[object]:  # type: ignore[override]
            raise StoreUnavailable

    wire(store=Away(clock))
    with pytest.raises(StoreUnavailable):
        invoke("on_undelivered", saved("on_undelivered/timed_out"))
