"""The verbs on reminders: one group of tasks, added, moved and cancelled together."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from duecourse import errors
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Move, Reply
from duecourse.ledger.reminder import QUEUE, Channel, Recipient, Reminder, Shown
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import DEFAULT_TENANT, DueTask, Ending, Settlement, Shard, Status, Task
from duecourse.reminders.one_off import OneOffReminders
from duecourse.reminders.send import Letter, Message
from tests.support.clock import START, HandClock
from tests.support.egress import anyone, anywhere
from tests.support.ledger import new
from tests.support.seals import seals_of

SHARD = Shard(QUEUE)
MINUTE = 60_000
HOUR = 60 * MINUTE
ADA = Recipient("Ada", Channel.EMAIL, "ada@example.com")
GRACE = Recipient("Grace", Channel.EMAIL, "grace@example.com", "Europe/Vienna")
STANDUP = Reminder(
    "standup", "Stand-up", (5 * MINUTE, MINUTE), (ADA, GRACE), "Room 4", "", {"room": 4}, starts_at=START + HOUR
)
IDS = ["standup:300:0", "standup:300:1", "standup:60:0", "standup:60:1"]


@pytest.fixture
def reminders(ledger: EmbeddedLedger) -> OneOffReminders:
    return OneOffReminders(ledger, plainly, anywhere, seals_of(ledger), anyone)


def plainly(letters: Iterable[Letter]) -> list[Message]:
    """Messages as they stand, without templates; one that says `broken` is."""
    payloads = [letter.payload for letter in letters]
    written = [Message(p["recipient"]["address"], p["subject"], p["message"], p["html"]) for p in payloads]
    if any(message.text == "broken" for message in written):
        raise errors.InvalidInput([errors.FieldError("message", "line 1: broken")])
    return written


def claim(ledger: EmbeddedLedger, limit: int = 10) -> list[Task]:
    """Lease what is due."""
    return ledger.claim(SHARD, limit, lease_ms=30_000).tasks


def settle(ledger: EmbeddedLedger, task: Task, ending: Ending = Ending.DONE) -> None:
    """End a lease."""
    ledger.settle(SHARD, [Settlement(task.id, task.tenant, task.token, ending)])


def send(ledger: EmbeddedLedger, limit: int = 10) -> list[str]:
    """Lease what is due and settle it as done."""
    leased = claim(ledger, limit)
    for task in leased:
        settle(ledger, task)
    return [task.id for task in leased]


def due_times(ledger: EmbeddedLedger, tenant: str = "-") -> dict[str, int]:
    """When each scheduled task is due."""
    return {task.id: task.due_at for task in ledger.group(QUEUE, "standup", tenant) if task.status is Status.SCHEDULED}


def test_there_is_one_task_for_each_lead_time_and_recipient(reminders: OneOffReminders, ledger: EmbeddedLedger) -> None:
    made = reminders.add(STANDUP)
    five, one = START + 55 * MINUTE, START + 59 * MINUTE
    assert made.created
    assert made.tasks == list(map(DueTask, IDS, [five, five, one, one]))
    assert due_times(ledger) == {task.id: task.due_at for task in made.tasks}
    task = ledger.get(QUEUE, "standup:300:1")
    assert task is not None
    assert (task.kind, task.group, task.state) == ("reminder", "standup", {"starts_at": START + HOUR})
    assert task.payload == {
        "reminder": "standup",
        "subject": "Stand-up",
        "message": "Room 4",
        "html": "",
        "data": {"room": 4},
        "recipient": {
            "name": "Grace",
            "channel": "email",
            "address": "grace@example.com",
            "time_zone": "Europe/Vienna",
        },
        "lead_ms": 5 * MINUTE,
    }


def test_a_lead_time_that_has_passed_is_due_at_once(reminders: OneOffReminders) -> None:
    made = reminders.add(replace(STANDUP, leads_ms=(2 * HOUR, MINUTE), recipients=(ADA,)))
    assert made.tasks == [DueTask("standup:7200:0", START), DueTask("standup:60:0", START + 59 * MINUTE)]


def test_a_lead_of_part_of_a_second_has_an_id_of_its_own(reminders: OneOffReminders) -> None:
    made = reminders.add(replace(STANDUP, leads_ms=(1_000, 1_500), recipients=(ADA,)))
    assert [task.id for task in made.tasks] == ["standup:1:0", "standup:1500ms:0"]


def test_a_start_that_has_passed_is_refused(reminders: OneOffReminders, ledger: EmbeddedLedger) -> None:
    reminders.add(STANDUP)
    for refused in (
        lambda: reminders.add(replace(STANDUP, id="b", starts_at=START)),
        lambda: move_to(reminders, START),
    ):
        with pytest.raises(errors.InvalidInput) as caught:
            refused()
        assert caught.value.problems[0].field == "starts_at"
    assert not ledger.group(QUEUE, "b")


def move_to(reminders: OneOffReminders, starts_at: int) -> None:
    """Move the stand-up."""
    reminders.move("standup", starts_at)


def test_the_same_reminder_again_is_kept(reminders: OneOffReminders, ledger: EmbeddedLedger) -> None:
    first = reminders.add(STANDUP)
    again = reminders.add(STANDUP)
    assert (again.created, set(again.tasks)) == (False, set(first.tasks))
    assert len(ledger.group(QUEUE, "standup")) == 4


def test_the_same_reminder_again_sends_nothing_twice(reminders: OneOffReminders, ledger: EmbeddedLedger) -> None:
    past = replace(STANDUP, leads_ms=(2 * HOUR,))
    reminders.add(past)
    assert len(send(ledger)) == 2
    assert not reminders.add(past).created
    assert send(ledger) == []


@pytest.mark.parametrize(
    "change",
    [
        {"subject": "Retro"},
        {"html": "<p>Retro"},
        {"data": {"room": 5}},
        {"starts_at": START + 2 * HOUR},
        {"leads_ms": (MINUTE,)},
        {"recipients": (ADA,)},
    ],
)
def test_another_reminder_under_a_live_ones_id_is_refused(
    reminders: OneOffReminders, ledger: EmbeddedLedger, change: dict[str, object]
) -> None:
    reminders.add(STANDUP)
    before = ledger.group(QUEUE, "standup")
    with pytest.raises(errors.TaskScheduled):
        reminders.add(replace(STANDUP, **change))
    assert ledger.group(QUEUE, "standup") == before


class Overtaken(EmbeddedLedger):
    """A ledger where another reminder comes between the first look at a group and what follows it."""

    other: Reminder | None = None

    def group(self, queue: str, group: str, tenant: str = DEFAULT_TENANT) -> list[Task]:
        seen = super().group(queue, group, tenant)
        if self.other:
            other, self.other = self.other, None
            OneOffReminders(self, plainly, anywhere, seals_of(self), anyone).add(other)
            send(self)
        return seen


def test_of_two_reminders_that_come_at_once_one_stands_whole(clock: HandClock) -> None:
    ledger = Overtaken(clock)
    ledger.other = replace(STANDUP, leads_ms=(MINUTE,))
    with pytest.raises(errors.TaskScheduled):
        OneOffReminders(ledger, plainly, anywhere, seals_of(ledger), anyone).add(STANDUP)
    assert [task.id for task in ledger.group(QUEUE, "standup")] == ["standup:60:0", "standup:60:1"]


def test_the_same_reminder_twice_at_once_is_sent_once(clock: HandClock) -> None:
    ledger = Overtaken(clock)
    ledger.other = replace(STANDUP, leads_ms=(2 * HOUR,))  # due, and sent, before the second adds
    assert not OneOffReminders(ledger, plainly, anywhere, seals_of(ledger), anyone).add(ledger.other).created
    assert send(ledger) == []


def test_what_cannot_be_written_is_refused_and_nothing_added(
    reminders: OneOffReminders, ledger: EmbeddedLedger
) -> None:
    for refused in (reminders.add, reminders.preview):
        with pytest.raises(errors.InvalidInput, match="message: line 1"):
            refused(replace(STANDUP, message="broken"))
    assert ledger.shards() == []


def test_a_preview_shows_each_message_and_sends_none(reminders: OneOffReminders, ledger: EmbeddedLedger) -> None:
    shown = reminders.preview(replace(STANDUP, html="<p>"))
    assert [DueTask(each.id, each.due_at) for each in shown] == reminders.add(replace(STANDUP, html="<p>")).tasks
    assert shown[1] == Shown(IDS[1], START + 55 * MINUTE, 5 * MINUTE, GRACE, "Stand-up", "Room 4", "<p>")
    reminders.cancel("standup")
    reminders.preview(STANDUP)
    assert claim(ledger) == []
    with pytest.raises(errors.InvalidInput, match="starts_at"):
        reminders.preview(replace(STANDUP, starts_at=START))


def test_a_preview_of_what_stands_shows_it_for_its_start_of_now(ledger: EmbeddedLedger) -> None:
    starts: list[int] = []

    def noting(letters: Iterable[Letter]) -> list[Message]:
        given = list(letters)
        starts.extend(letter.starts_at for letter in given)
        return plainly(given)

    reminders = OneOffReminders(ledger, noting, anywhere, seals_of(ledger), anyone)
    reminders.add(STANDUP)
    reminders.move("standup", START + 2 * HOUR)
    shown = reminders.preview_standing("standup")
    assert {(each.id, each.due_at) for each in shown} == set(due_times(ledger).items())
    assert starts == [START + HOUR] * 4 + [START + 2 * HOUR] * 8


def test_an_id_is_free_once_nothing_of_it_is_live(reminders: OneOffReminders, ledger: EmbeddedLedger) -> None:
    reminders.add(STANDUP)
    reminders.cancel("standup")
    assert reminders.add(STANDUP).created
    assert len(due_times(ledger)) == 4


def test_a_reminder_is_shown_with_its_tasks(reminders: OneOffReminders) -> None:
    reminders.add(STANDUP)
    standing = reminders.get("standup")
    assert (standing.id, standing.starts_at) == ("standup", START + HOUR)
    assert [task.id for task in standing.tasks] == IDS


def test_a_move_takes_every_pending_task_along(reminders: OneOffReminders, ledger: EmbeddedLedger) -> None:
    reminders.add(STANDUP)
    moved = reminders.move("standup", START + 2 * HOUR)
    assert [(task.id, task.was) for task in moved.tasks] == [(task_id, Status.SCHEDULED) for task_id in IDS]
    assert due_times(ledger) == {task.id: task.due_at for task in moved.tasks}
    assert moved.tasks[0].due_at == START + 2 * HOUR - 5 * MINUTE
    assert (moved.leased, moved.sent) == ([], [])
    assert reminders.get("standup").starts_at == START + 2 * HOUR


def test_what_was_sent_for_the_old_start_is_sent_again_for_the_new(
    reminders: OneOffReminders, ledger: EmbeddedLedger, clock: HandClock
) -> None:
    reminders.add(STANDUP)
    clock.advance(55 * MINUTE)
    assert send(ledger) == IDS[:2]
    moved = reminders.move("standup", START + 3 * HOUR)
    assert moved.sent == IDS[:2]
    assert [task.was for task in moved.tasks] == [Status.DONE, Status.DONE, Status.SCHEDULED, Status.SCHEDULED]
    assert len(due_times(ledger)) == 4
    revived = ledger.get(QUEUE, IDS[0])
    assert revived is not None
    assert (revived.run, revived.state) == (0, {"starts_at": START + 3 * HOUR})


def test_a_move_sends_nothing_again_over_a_quota(
    reminders: OneOffReminders, ledger: EmbeddedLedger, clock: HandClock
) -> None:
    made = reminders.add(STANDUP, "acme")
    clock.advance(55 * MINUTE)
    sent = send(ledger)
    ledger.configure(QUEUE, {"tenant_adds_per_minute": len(sent) - 1})
    with pytest.raises(errors.BeyondQuota, match="tenant_adds_per_minute") as beyond:
        reminders.move("standup", START + 3 * HOUR, "acme")
    assert [one.field for one in beyond.value.problems] == ["starts_at"]
    ledger.configure(QUEUE, {"tenant_adds_per_minute": len(sent)})
    ledger.add([new("another", tenant="acme", queue=QUEUE)])
    with pytest.raises(errors.QuotaExceeded, match="tenant_adds_per_minute"):
        reminders.move("standup", START + 3 * HOUR, "acme")
    assert due_times(ledger, "acme") == {task.id: task.due_at for task in made.tasks if task.id not in sent}


def test_a_move_to_a_start_that_a_message_cannot_be_written_for_changes_nothing(ledger: EmbeddedLedger) -> None:
    def early_alone(letters: Iterable[Letter]) -> list[Message]:
        if any(letter.starts_at > START + HOUR for letter in letters):
            raise errors.InvalidInput([errors.FieldError("subject", "line 1: it comes to 201 characters")])
        return []

    reminders = OneOffReminders(ledger, early_alone, anywhere, seals_of(ledger), anyone)
    made = reminders.add(STANDUP)
    with pytest.raises(errors.InvalidInput, match="201 characters"):
        reminders.move("standup", START + 2 * HOUR)
    assert due_times(ledger) == {task.id: task.due_at for task in made.tasks}


def test_the_same_move_again_sends_nothing_twice(
    reminders: OneOffReminders, ledger: EmbeddedLedger, clock: HandClock
) -> None:
    reminders.add(STANDUP)
    clock.advance(55 * MINUTE)
    send(ledger)
    reminders.move("standup", START + 56 * MINUTE)
    assert sorted(send(ledger)) == sorted(IDS)[:2] + sorted(IDS)[2:]
    again = reminders.move("standup", START + 56 * MINUTE)
    assert (again.tasks, sorted(again.sent)) == ([], sorted(IDS))
    assert send(ledger) == []


def test_what_is_being_sent_is_left_alone_and_named(
    reminders: OneOffReminders, ledger: EmbeddedLedger, clock: HandClock
) -> None:
    reminders.add(STANDUP)
    clock.advance(55 * MINUTE)
    [leased] = claim(ledger, 1)
    moved = reminders.move("standup", START + 3 * HOUR)
    assert moved.leased == [leased.id]
    assert leased.id not in {task.id for task in moved.tasks}
    assert reminders.get("standup").starts_at == START + 3 * HOUR


def test_a_cancelled_reminder_sends_nothing(
    reminders: OneOffReminders, ledger: EmbeddedLedger, clock: HandClock
) -> None:
    reminders.add(STANDUP)
    reminders.cancel("standup")
    clock.advance(HOUR)
    assert claim(ledger) == []


def test_a_cancel_names_what_is_being_sent_and_cancels_the_rest(
    reminders: OneOffReminders, ledger: EmbeddedLedger, clock: HandClock
) -> None:
    reminders.add(STANDUP)
    clock.advance(55 * MINUTE)
    [leased] = claim(ledger, 1)
    with pytest.raises(errors.TaskLeased, match=leased.id):
        reminders.cancel("standup")
    assert due_times(ledger) == {}
    reminders.cancel("standup", force=True)
    assert {task.status for task in ledger.group(QUEUE, "standup")} == {Status.CANCELLED}


def test_a_cancel_leaves_what_was_sent_and_deletes_what_is_dead(
    reminders: OneOffReminders, ledger: EmbeddedLedger, clock: HandClock
) -> None:
    reminders.add(STANDUP)
    clock.advance(55 * MINUTE)
    sent, dead = claim(ledger)
    settle(ledger, sent)
    settle(ledger, dead, Ending.DROP)
    reminders.cancel("standup")
    states = {task.id: task.status for task in ledger.group(QUEUE, "standup")}
    assert states.pop(sent.id) is Status.DONE
    assert states == dict.fromkeys(IDS[2:], Status.CANCELLED)


def test_a_reminder_with_nothing_pending_says_why_it_cannot_be_changed(
    reminders: OneOffReminders, ledger: EmbeddedLedger, clock: HandClock
) -> None:
    reminders.add(STANDUP)
    clock.advance(59 * MINUTE)
    send(ledger)
    with pytest.raises(errors.TaskDone):
        reminders.cancel("standup")
    reminders.add(replace(STANDUP, id="retro"))
    reminders.cancel("retro")
    for refused in (lambda: reminders.cancel("retro"), lambda: reminders.move("retro", START + 2 * HOUR)):
        with pytest.raises(errors.TaskCancelled):
            refused()


def test_an_unknown_reminder_is_not_found(reminders: OneOffReminders) -> None:
    for refused in (
        reminders.get,
        reminders.cancel,
        reminders.preview_standing,
        lambda unknown: reminders.move(unknown, START + HOUR),
    ):
        with pytest.raises(errors.TaskNotFound, match=r"^Queue reminders has no reminder nobody\.$"):
            refused("nobody")


class CancelledMeanwhile(EmbeddedLedger):
    """A ledger on which somebody cancels the reminder just before it is moved."""

    def move(self, queue: str, moves: Sequence[Move], tenant: str = DEFAULT_TENANT, *, group: str = "") -> list[Reply]:
        self.cancel(queue, [move.id for move in moves])
        return super().move(queue, moves, tenant, group=group)


def test_a_move_that_a_cancel_overtook_is_refused(clock: HandClock) -> None:
    reminders = OneOffReminders(
        CancelledMeanwhile(clock), plainly, anywhere, seals_of(CancelledMeanwhile(clock)), anyone
    )
    reminders.add(STANDUP)
    with pytest.raises(errors.TaskCancelled):
        reminders.move("standup", START + 2 * HOUR)


class Sharded(EmbeddedLedger):
    """A ledger of eight shards that keeps for which groups it was asked."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock, Sharding({QUEUE: 8}))
        self.groups: list[str] = []

    def move(self, queue: str, moves: Sequence[Move], tenant: str = DEFAULT_TENANT, *, group: str = "") -> list[Reply]:
        self.groups.append(group)
        return super().move(queue, moves, tenant, group=group)

    def cancel(self, queue: str, ids: Sequence[str], *, group: str = "", **named: Any) -> list[Reply]:
        self.groups.append(group)
        return super().cancel(queue, ids, group=group, **named)


def test_of_many_shards_a_reminder_is_in_one_and_each_verb_is_told_which(clock: HandClock) -> None:
    ledger = Sharded(clock)
    reminders = OneOffReminders(ledger, plainly, anywhere, seals_of(ledger), anyone)
    reminders.add(STANDUP)
    reminders.move("standup", START + HOUR)
    reminders.cancel("standup")
    assert ledger.shards() == [ledger.shard_of(QUEUE, "", "standup")]
    assert ledger.groups == ["standup", "standup"]


def test_each_tenant_has_reminders_of_its_own(reminders: OneOffReminders, ledger: EmbeddedLedger) -> None:
    reminders.add(STANDUP)
    assert reminders.add(replace(STANDUP, subject="Retro"), "acme").created
    assert {each.subject for each in reminders.preview_standing("standup", "acme")} == {"Retro"}
    reminders.move("standup", START + 2 * HOUR, "acme")
    assert (reminders.get("standup").starts_at, reminders.get("standup", "acme").starts_at) == (
        START + HOUR, START + 2 * HOUR
    )  # fmt: skip
    reminders.cancel("standup", tenant="acme")
    assert {task.status for task in ledger.group(QUEUE, "standup")} == {Status.SCHEDULED}
    with pytest.raises(errors.TaskNotFound):
        reminders.get("standup", "other")


@pytest.mark.slow
def test_messages_over_10_mb_in_all_are_rejected_for_they_are_one_step(
    reminders: OneOffReminders, ledger: EmbeddedLedger
) -> None:
    def crowd(length: int) -> tuple[Recipient, ...]:
        addresses = (f"https://example.com/{n:04}/".ljust(length, "x") for n in range(1_000))
        return tuple(Recipient(f"R{n}", Channel.WEBHOOK, address) for n, address in enumerate(addresses))

    reminder = replace(STANDUP, leads_ms=(MINUTE,))
    with pytest.raises(errors.InvalidInput, match=r"recipients: 10,.* bytes in each of 1,000 messages"):
        reminders.add(replace(reminder, recipients=crowd(10_000)))
    assert ledger.shards() == []
    assert reminders.add(replace(reminder, recipients=crowd(9_500))).created
