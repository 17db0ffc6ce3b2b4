"""Reminders that come again: occurrences that are added, moved and cancelled alone, and changes of the series."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from duecourse import errors
from duecourse.base.json_text import dump_json
from duecourse.base.times import DAY_MS, parse_instant
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import KeyedTry
from duecourse.ledger.reminder import (
    AHEAD_MS,
    QUEUE,
    SERIES_KIND,
    Channel,
    Mark,
    Name,
    Recipient,
    Reminder,
    Series,
    SeriesChange,
)
from duecourse.ledger.schedule import Progress, RRule, Rule, occurrence_id
from duecourse.ledger.task import Again, Done, Drop, Ending, Outcome, Settlement, Shard, Status, Task
from duecourse.reminders.occurrence_updates import Occurrences
from duecourse.reminders.one_off import OneOffReminders
from duecourse.reminders.verbs import Reminders
from duecourse.schedules.calendar import Calendar
from duecourse.schedules.firing import Firer
from tests.reminders.test_one_off import plainly
from tests.support.call_count import within
from tests.support.clock import HandClock
from tests.support.egress import anyone, anywhere
from tests.support.schedules import fire_due
from tests.support.seals import seals_of

MINUTE = 60_000
WEEK = 7 * DAY_MS
SHARD = Shard(QUEUE)
FIRST = parse_instant("2026-10-06T07:00:00Z")  # a Tuesday, 09:00 in Vienna
ADA = Recipient("Ada", Channel.EMAIL, "ada@example.com", "")
RULE = Rule(RRule("FREQ=WEEKLY"), FIRST, "Europe/Vienna")
WEEKLY = Series("weekly", "Weekly", (DAY_MS, 5 * MINUTE), (ADA,), "Room 4", "", {}, ("recipients.0.email",), rule=RULE)


class Scene:
    """The verbs and the work on a ledger in memory, whose clock a test moves."""

    def __init__(self, ledger: EmbeddedLedger, clock: HandClock) -> None:
        self.ledger, self.clock = ledger, clock
        clock.at = FIRST - 5 * DAY_MS
        calendar = Calendar()
        reminders = OneOffReminders(ledger, plainly, anywhere, seals_of(ledger), anyone)
        self.verbs = Reminders(ledger, calendar, reminders)
        self.work = Occurrences(ledger, calendar, reminders)
        self.firer = Firer(ledger, calendar)

    def drain(self) -> list[str]:
        """Fire and work what is due; the messages that are sent, by id."""
        sent: list[str] = []
        while True:
            claim = self.ledger.claim(SHARD, 10, lease_ms=30_000)
            ends = [self._end(task, sent) for task in claim.tasks]
            if ends:
                self.ledger.settle(SHARD, ends)
            if claim.schedules:
                self.firer.fire(SHARD, claim.schedules, claim.now)
            elif not claim.tasks:
                return sorted(sent)

    def _end(self, task: Task, sent: list[str]) -> Settlement:
        if task.kind != SERIES_KIND:
            sent.append(task.id)
            return Settlement(task.id, task.tenant, task.token, Ending.DONE)
        return _settlement(task, self.work.run_task(task))

    def at(self, instant: int) -> list[str]:
        """Move the clock and work."""
        self.clock.at = instant
        return self.drain()

    def pending(self, nominal: int) -> dict[str, int]:
        """Pending messages of an occurrence and how long before its start by the rule each is due."""
        tasks = self.ledger.group(QUEUE, occurrence_id("weekly", nominal))
        return {task.id: nominal - task.due_at for task in tasks if task.status is Status.SCHEDULED}

    def states(self) -> list[tuple[int, str]]:
        """Occurrences as the series shows them."""
        status = self.verbs.get("weekly").series
        assert status
        return [(one.nominal, one.state) for one in status.occurrences]


def _settlement(task: Task, outcome: Outcome) -> Settlement:
    match outcome:
        case Again(at=at, state=state):
            assert isinstance(at, str)
            due = parse_instant(at)
            return Settlement.of(task, Ending.AGAIN, due_at=due, state=dump_json(state))
        case Done():
            return Settlement.of(task, Ending.DONE)
    raise AssertionError(outcome)


@pytest.fixture
def scene(ledger: EmbeddedLedger, clock: HandClock) -> Scene:
    return Scene(ledger, clock)


def wrong(asked: Reminder | Series, scene: Scene) -> list[str]:
    """Fields for which an add is rejected."""
    with pytest.raises(errors.InvalidInput) as caught:
        scene.verbs.add(asked)
    assert scene.ledger.schedule(QUEUE, asked.id) is None
    return [one.field for one in caught.value.problems]


def ids(nominal: int, *leads: int) -> Sequence[str]:
    """Ids of an occurrence's messages, in their order."""
    return sorted(f"{occurrence_id('weekly', nominal)}:{lead}:0" for lead in leads)


def test_an_occurrence_is_added_a_minute_before_its_largest_lead(scene: Scene) -> None:
    assert scene.verbs.add(WEEKLY).created
    assert scene.at(FIRST - DAY_MS - AHEAD_MS - 1) == []
    assert scene.pending(FIRST) == {}
    scene.at(FIRST - DAY_MS - AHEAD_MS)
    assert sorted(scene.pending(FIRST).values()) == [5 * MINUTE, DAY_MS]
    assert scene.states() == [(FIRST, "standing")]
    assert scene.at(FIRST - DAY_MS) == ids(FIRST, 86400)
    assert scene.at(FIRST - MINUTE) == ids(FIRST, 300)
    scene.at(FIRST)
    assert scene.states() == []


def test_the_same_series_again_changes_nothing_and_another_is_a_conflict(scene: Scene) -> None:
    scene.verbs.add(WEEKLY)
    scene.clock.advance(MINUTE)
    assert not scene.verbs.add(WEEKLY).created
    one = Reminder("weekly", "Weekly", (MINUTE,), (ADA,), starts_at=FIRST)
    for other in (replace(WEEKLY, subject="Another"), one, replace(one, id=occurrence_id("weekly", FIRST))):
        with pytest.raises(errors.ScheduleExists):
            scene.verbs.add(other)


def test_a_reminder_of_one_start_keeps_its_id(scene: Scene) -> None:
    one = Reminder("weekly", "Weekly", (MINUTE,), (replace(ADA, time_zone="UTC"),), starts_at=FIRST)
    scene.verbs.add(one)
    with pytest.raises(errors.TaskScheduled):
        scene.verbs.add(WEEKLY)
    assert scene.verbs.get("weekly").series is None


def test_lead_times_that_had_passed_at_the_add_are_made_up_for_at_the_first_start_alone(scene: Scene) -> None:
    scene.verbs.add(replace(WEEKLY, leads_ms=(3 * WEEK, MINUTE)))
    assert scene.drain() == ids(FIRST, 3 * 604800)
    assert [nominal for nominal, _ in scene.states()] == [FIRST, FIRST + WEEK, FIRST + 2 * WEEK]
    assert list(scene.pending(FIRST + WEEK).values()) == [MINUTE]


def test_a_late_occurrence_is_added_as_long_as_its_start_is_to_come(scene: Scene) -> None:
    scene.verbs.add(WEEKLY)
    assert scene.at(FIRST + WEEK - MINUTE) == ids(FIRST + WEEK, 86400, 300)


def test_an_occurrence_that_stands_is_moved_alone(scene: Scene) -> None:
    scene.verbs.add(WEEKLY)
    scene.at(FIRST - DAY_MS)
    moved = scene.verbs.move_occurrence("weekly", FIRST, FIRST + DAY_MS)
    assert (moved.starts_at, moved.sent) == (FIRST + DAY_MS, list(ids(FIRST, 86400)))
    scene.drain()
    assert sorted(scene.pending(FIRST).values()) == [5 * MINUTE - DAY_MS, 0]
    assert scene.at(FIRST + DAY_MS - MINUTE) == ids(FIRST, 86400, 300)
    assert scene.at(FIRST + WEEK - DAY_MS) == ids(FIRST + WEEK, 86400)


def test_an_occurrence_that_is_to_come_is_moved_forward_and_not_added_again(scene: Scene) -> None:
    scene.verbs.add(WEEKLY)
    later = FIRST + WEEK
    scene.verbs.move_occurrence("weekly", later, FIRST + DAY_MS)
    assert scene.states() == [(later, "moved")]
    assert scene.at(FIRST - MINUTE) == ids(FIRST, 86400, 300)
    assert scene.at(FIRST + DAY_MS - MINUTE) == ids(later, 86400, 300)
    assert scene.at(later - MINUTE) == []
    assert scene.states() == [(later, "moved")]
    assert scene.at(later + WEEK - MINUTE) == ids(later + WEEK, 86400, 300)


def test_a_cancelled_occurrence_never_comes_and_the_others_do(scene: Scene) -> None:
    scene.verbs.add(WEEKLY)
    scene.at(FIRST - DAY_MS)
    scene.verbs.cancel_occurrence("weekly", FIRST)
    scene.verbs.cancel_occurrence("weekly", FIRST + WEEK)
    assert scene.at(FIRST - MINUTE) == []
    assert scene.at(FIRST + WEEK - MINUTE) == []
    assert scene.at(FIRST + 2 * WEEK - MINUTE) == ids(FIRST + 2 * WEEK, 86400, 300)
    for verb in (
        lambda: scene.verbs.cancel_occurrence("weekly", FIRST + 3 * WEEK - 1),
        lambda: scene.verbs.cancel_occurrence("weekly", FIRST),
    ):
        with pytest.raises(errors.TaskNotFound):
            verb()


def test_an_occurrence_that_was_cancelled_is_neither_moved_nor_cancelled(scene: Scene) -> None:
    scene.verbs.add(WEEKLY)
    scene.verbs.cancel_occurrence("weekly", FIRST)
    with pytest.raises(errors.TaskCancelled):
        scene.verbs.cancel_occurrence("weekly", FIRST)
    with pytest.raises(errors.TaskCancelled):
        scene.verbs.move_occurrence("weekly", FIRST, FIRST + DAY_MS)


def change(scene: Scene, **fields: object) -> None:
    """Change fields of the series."""
    rule = fields.get("rule", {})
    assert isinstance(rule, dict)
    scene.verbs.change("weekly", SeriesChange(fields, (*fields, *rule)))


def test_a_changed_series_takes_its_standing_occurrences_along(scene: Scene) -> None:
    scene.verbs.add(WEEKLY)
    scene.at(FIRST - DAY_MS)
    change(scene, subject="Weekly, shorter")
    [pending] = [
        task for task in scene.ledger.group(QUEUE, occurrence_id("weekly", FIRST)) if task.status == "scheduled"
    ]
    assert (pending.payload["subject"], pending.payload["lead_ms"]) == ("Weekly, shorter", 5 * MINUTE)
    assert scene.at(FIRST - MINUTE) == ids(FIRST, 300)


def test_a_moved_series_leaves_what_was_changed_by_hand(scene: Scene) -> None:
    scene.verbs.add(replace(WEEKLY, leads_ms=(3 * WEEK, MINUTE)))
    scene.drain()
    scene.verbs.move_occurrence("weekly", FIRST + WEEK, FIRST + WEEK + 2 * DAY_MS)
    scene.verbs.cancel_occurrence("weekly", FIRST + 2 * WEEK)
    change(scene, rule={"starts_at": FIRST + DAY_MS})
    scene.drain()
    assert scene.states() == [
        (FIRST + DAY_MS, "standing"),
        (FIRST + WEEK, "moved"),
        (FIRST + WEEK + DAY_MS, "standing"),
        (FIRST + 2 * WEEK, "cancelled"),
        (FIRST + 2 * WEEK + DAY_MS, "standing"),
    ]
    assert scene.pending(FIRST) == {}
    assert [*scene.pending(FIRST + WEEK).values()] == [MINUTE - 2 * DAY_MS]


def test_a_series_that_is_moved_back_has_its_occurrences_again(scene: Scene) -> None:
    scene.verbs.add(WEEKLY)
    scene.at(FIRST - DAY_MS + 1)
    change(scene, rule={"starts_at": FIRST + MINUTE})
    scene.drain()
    change(scene, rule={"starts_at": FIRST})
    scene.drain()
    assert scene.states() == [(FIRST, "standing")]
    assert 5 * MINUTE in scene.pending(FIRST).values()


def test_a_deleted_series_takes_all_but_what_was_moved(scene: Scene) -> None:
    scene.verbs.add(replace(WEEKLY, leads_ms=(3 * WEEK, MINUTE)))
    scene.drain()
    scene.verbs.move_occurrence("weekly", FIRST + WEEK, FIRST + WEEK + DAY_MS)
    scene.verbs.cancel("weekly")
    assert scene.pending(FIRST) == scene.pending(FIRST + 2 * WEEK) == {}
    with pytest.raises(errors.TaskNotFound):
        scene.verbs.get("weekly")
    assert scene.at(FIRST + WEEK + DAY_MS - MINUTE) == ids(FIRST + WEEK, 60)
    scene.verbs.add(replace(WEEKLY, rule=replace(RULE, starts_at=FIRST + 4 * WEEK)))
    assert scene.verbs.get("weekly").series


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_a_series_that_is_added_again_has_every_start_again(scene: Scene, *, is_cut_off: bool) -> None:
    asked = replace(WEEKLY, leads_ms=(3 * WEEK, MINUTE))
    scene.verbs.add(asked)
    scene.drain()
    later = FIRST + 5 * WEEK + DAY_MS // 24  # the clocks have changed
    for nominal in (FIRST + WEEK, later):
        scene.verbs.cancel_occurrence("weekly", nominal)
    scene.verbs.cancel("weekly")
    assert scene.drain() == []
    if is_cut_off:  # right after the schedule was written
        scene.ledger.put_schedule(replace(asked, since=scene.clock.at, first=FIRST).schedule(None), Progress())
    assert scene.verbs.add(asked).created is not is_cut_off
    scene.drain()
    starts = [FIRST, FIRST + WEEK, FIRST + 2 * WEEK, later]
    assert scene.states() == [(nominal, "standing") for nominal in starts]
    assert all(MINUTE in scene.pending(nominal).values() for nominal in starts)


def test_a_start_of_a_series_that_was_added_again_is_moved_with_all_its_messages(scene: Scene) -> None:
    asked = replace(WEEKLY, leads_ms=(3 * WEEK, MINUTE))
    scene.verbs.add(asked)
    assert scene.drain() == ids(FIRST, 3 * 604800)
    scene.verbs.cancel("weekly")
    scene.verbs.add(asked)
    scene.verbs.move_occurrence("weekly", FIRST, FIRST + DAY_MS)
    assert MINUTE - DAY_MS in scene.pending(FIRST).values()


def test_an_occurrence_is_changed_by_its_own_id_as_by_hand(scene: Scene) -> None:
    scene.verbs.add(replace(WEEKLY, leads_ms=(3 * WEEK, MINUTE)))
    scene.drain()
    moved, cancelled = (occurrence_id("weekly", FIRST + n * WEEK) for n in range(2))
    scene.verbs.change(moved, SeriesChange({"rule": {"starts_at": FIRST + 1}}, ("starts_at",)))
    scene.verbs.cancel(cancelled)
    change(scene, subject="Weekly, shorter")
    scene.drain()
    assert scene.states()[:2] == [(FIRST, "moved"), (FIRST + WEEK, "cancelled")]
    assert scene.pending(FIRST + WEEK) == {}
    with pytest.raises(errors.TaskCancelled):
        scene.verbs.cancel(cancelled)


def test_an_occurrence_that_is_added_while_its_series_is_deleted_is_taken_back(scene: Scene) -> None:
    scene.verbs.add(WEEKLY)
    scene.clock.at = FIRST - DAY_MS - AHEAD_MS
    fire_due(scene.ledger, scene.firer.fire, SHARD)
    [task] = scene.ledger.claim(SHARD, 1, lease_ms=30_000).tasks
    scene.verbs.cancel("weekly")
    assert scene.work.run_task(task) == Done()
    assert scene.pending(FIRST) == {}


def test_a_mark_is_made_good_by_its_task_after_a_crash(scene: Scene, ledger: EmbeddedLedger) -> None:
    scene.verbs.add(WEEKLY)
    ledger.add([Mark(starts_at=FIRST + DAY_MS).task("weekly", FIRST, scene.clock.at, "-", "test")])
    scene.drain()
    assert sorted(scene.pending(FIRST).values()) == [5 * MINUTE - DAY_MS, 0]


def test_an_end_counts_starts_from_the_first(scene: Scene) -> None:
    scene.verbs.add(replace(WEEKLY, limit=3))
    status = scene.verbs.get("weekly").series
    assert status
    assert [one.nominal for one in status.upcoming] == [FIRST, FIRST + WEEK, FIRST + 2 * WEEK]
    assert status.series.rule.until is None
    change(scene, limit=2)
    status = scene.verbs.get("weekly").series
    assert status
    assert len(status.upcoming) == 2


def test_an_end_of_ten_thousand_rare_starts_takes_few_steps(scene: Scene) -> None:
    rare = Rule(RRule("FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO"), parse_instant("2026-12-28T07:00:00Z"), "Europe/Vienna")
    within(600_000, lambda: scene.verbs.add(replace(WEEKLY, rule=rare, limit=10_000)))


def test_a_change_of_another_version_changes_nothing(scene: Scene) -> None:
    scene.verbs.add(WEEKLY)
    change(scene, subject="Other")
    with pytest.raises(errors.VersionConflict, match="The reminder has another version"):
        scene.verbs.change("weekly", SeriesChange({"subject": "Late"}, ("subject",), 1))


def test_what_cannot_come_again_is_rejected_by_its_field(scene: Scene) -> None:
    assert wrong(replace(WEEKLY, rule=replace(RULE, starts_at=scene.clock.at)), scene) == ["starts_at"]
    assert wrong(replace(WEEKLY, rule=replace(RULE, repeat=RRule("FREQ=WEEKLY;BYDAY=WE"))), scene) == ["starts_at"]
    assert wrong(replace(WEEKLY, message="broken"), scene) == ["message"]
    assert wrong(replace(WEEKLY, leads_ms=(300 * WEEK,)), scene) == ["repeat", "remind_before"]
    assert wrong(replace(WEEKLY, data={"password": "hunter22"}), scene) == ["data.password"]
    hook = Recipient("Ada", Channel.WEBHOOK, "https://example.com/?token=abcdef0123456789", "")
    assert wrong(replace(WEEKLY, recipients=(hook,), fields=("recipients.0.webhook",)), scene) == [
        "recipients.0.webhook"
    ]


def test_a_named_credential_is_kept_by_its_name(scene: Scene) -> None:
    hook = Recipient("Ada", Channel.WEBHOOK, "https://example.com/hook", "", "billing")
    assert scene.verbs.add(replace(WEEKLY, recipients=(hook,))).created


def test_a_reminder_of_one_start_has_no_fields_of_a_series(scene: Scene) -> None:
    one = Reminder("once", "Once", (MINUTE,), (replace(ADA, time_zone="UTC"),), starts_at=FIRST)
    scene.verbs.add(one)
    with pytest.raises(errors.InvalidInput) as caught:
        scene.verbs.change("once", SeriesChange({"subject": "Other"}, ("subject",)))
    assert [one.field for one in caught.value.problems] == ["subject", "starts_at"]
    with pytest.raises(errors.InvalidInput) as caught:
        scene.verbs.change("once", SeriesChange({"rule": {"starts_at": FIRST + 1}}, ("starts_at",), 1))
    assert [one.field for one in caught.value.problems] == ["if_version"]
    with pytest.raises(errors.TaskNotFound):
        scene.verbs.change("nobody", SeriesChange({"subject": "Other"}, ("subject",)))
    moved = scene.verbs.change("once", SeriesChange({"rule": {"starts_at": FIRST + 1}}, ("starts_at",)))
    assert moved.starts_at == FIRST + 1


def test_a_repeat_moves_no_occurrence_that_took_the_place_of_a_one_off_reminder(scene: Scene) -> None:
    id, notes = occurrence_id("weekly", FIRST), list[bytes]()
    later = SeriesChange({"rule": {"starts_at": FIRST + MINUTE}}, ("starts_at",))
    scene.verbs.add(Reminder(id, "Once", (MINUTE,), (replace(ADA, time_zone="UTC"),), starts_at=FIRST))
    with pytest.raises(errors.KeyInUse):  # the first try ends here, before it has changed anything
        scene.verbs.with_source("http", KeyedTry("a", keep=lambda note: bool(notes.append(note)))).change(id, later)
    scene.verbs.cancel(id)
    scene.verbs.add(WEEKLY)
    scene.at(FIRST - DAY_MS)
    before = scene.pending(FIRST)
    with pytest.raises(errors.ChangedSince):
        scene.verbs.with_source("http", KeyedTry("a", note=notes[0])).change(id, later)
    assert scene.pending(FIRST) == before != {}


def test_a_damaged_task_of_an_occurrence_is_dropped(scene: Scene) -> None:
    task = Mark().task("weekly", FIRST, scene.clock.at, "-", "test")._replace(id="weekly@noon")
    scene.ledger.add([task])
    [leased] = scene.ledger.claim(SHARD, 1, lease_ms=30_000).tasks
    assert isinstance(scene.work.run_task(leased), Drop)
    with pytest.raises(errors.TaskDamaged):
        Name.of("weekly")
