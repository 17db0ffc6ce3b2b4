"""The numbered file of schedules on every store: applied once a number, whoever else applies another one."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from duecourse.errors import FieldError, InvalidInput, QuotaExceeded
from duecourse.ledger.operation_types import Put
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.schedule import (
    AT_ADD,
    Cron,
    Entry,
    FileChanges,
    FileState,
    Fold,
    Gap,
    Rule,
    Schedule,
    ScheduleFile,
    key_of,
)
from duecourse.ledger.task import DEFAULT_TENANT
from duecourse.schedules.calendar import Calendar
from duecourse.schedules.file import SETTLED_MS, ScheduleFiles
from duecourse.schedules.verbs import Schedules
from tests.support.clock import START, HandClock

DAILY, HOURLY = Entry("default", DEFAULT_TENANT, "daily"), Entry("default", DEFAULT_TENANT, "hourly")
AT_NINE, AT_TEN = Cron("0 9 * * *"), Cron("0 10 * * *")


class Killed(Exception):
    """The process is gone."""


class Interrupted:
    """A ledger, or a record, that does something before a call of one name, once."""

    def __init__(self, kept: Any, name: str, act: Callable[[], None], calls: int = 1) -> None:
        self._kept, self._name, self._act, self._calls = kept, name, act, calls

    def __getattr__(self, name: str) -> Any:
        if name == self._name:
            self._calls -= 1
            if self._calls == 0:
                self._act()
        return getattr(self._kept, name)


def one(id: str = "daily", repeat: Cron = AT_NINE, **fields: Any) -> Schedule:
    return Schedule(id, "webhook", Rule(repeat, AT_ADD), **fields)


def file(number: int, *schedules: Schedule, digest: str = "d") -> ScheduleFile:
    return ScheduleFile(number, tuple(replace(each, file=number) for each in schedules), (), digest)


def verbs(ledger: Ledger) -> Schedules:
    return Schedules(ledger, Calendar(), lambda task: task)


def files(ledger: Ledger, within: Any = None) -> ScheduleFiles:
    """The verbs of one process; `within` stands for the store in it."""
    kept = within or ledger
    return ScheduleFiles(kept, kept.schedule_files(), verbs(kept))


def apply(ledger: Ledger, *given: Any, **fields: Any) -> FileChanges | None:
    return files(ledger).apply(file(*given, **fields))


def there(ledger: Ledger) -> dict[str, Any]:
    return {each.schedule.id: each.schedule.rule.repeat for each in ledger.schedules("default", "", 100).schedules}


@pytest.fixture
def killed() -> Callable[[], None]:
    def act() -> None:
        raise Killed

    return act


def test_a_ledger_without_files_knows_none(ledger: Ledger) -> None:
    assert ledger.schedule_files().read() == FileState()
    assert ledger.schedule_files().highest() == 0


def test_the_highest_number_that_was_begun_stays_and_every_entry_is_known_until_it_settles(ledger: Ledger) -> None:
    record = ledger.schedule_files()
    assert record.begin(2, "b", [DAILY]) == FileState(2, START, digest="b", entries=frozenset({DAILY}))
    assert (
        record.begin(1, "a", [HOURLY]) == record.read() == FileState(2, START, digest="b", entries=frozenset({DAILY}))
    )
    assert record.begin(3, "c", [HOURLY]).entries == {DAILY, HOURLY}
    assert not record.finish(2)
    assert not record.settle(3), "it is not applied"
    assert record.finish(3)
    assert record.begin(3, "other", [DAILY]) == record.read(), "what is applied is what was begun"
    assert record.settle(3)
    assert record.read() == FileState(3, START, 3, 3, "c", frozenset({HOURLY}))
    assert record.highest() == 3


def test_a_file_is_applied_once_and_what_is_changed_by_hand_after_that_stays(ledger: Ledger, clock: HandClock) -> None:
    assert apply(ledger, 1, one()) == FileChanges((DAILY,), (), (), ())
    clock.advance(SETTLED_MS - 1)
    assert apply(ledger, 1, one()) is None
    assert ledger.schedule_files().read().settled == 0, "an earlier deployment may yet add what it has"
    verbs(ledger).change("default", "daily", {"paused": True})
    for later_ms in (0, SETTLED_MS, SETTLED_MS):
        clock.advance(later_ms)
        assert apply(ledger, 1, one()) is None
    assert ledger.schedule("default", "daily").schedule.paused  # type: ignore[union-attr]
    assert ledger.schedule_files().read().settled == 1


def test_a_later_file_adds_changes_and_deletes_and_leaves_alone_what_was_made_by_hand(
    ledger: Ledger, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    verbs(ledger).add(one("own"))
    apply(ledger, 1, one(), one("hourly"), one("same"))
    clock.advance(1)
    changes = apply(ledger, 4, one(repeat=AT_TEN), one("new"), one("same"), one("own", AT_TEN))
    assert "schedule own of queue default is not this file's, and is left alone" in caplog.text
    assert changes == FileChanges(
        added=(Entry("default", DEFAULT_TENANT, "new"),),
        changed=(DAILY,),
        deleted=(HOURLY,),
        foreign=(Entry("default", DEFAULT_TENANT, "own"),),
    )
    assert there(ledger) == {"daily": AT_TEN, "new": AT_NINE, "own": AT_NINE, "same": AT_NINE}
    same, changed = ledger.schedule("default", "same"), ledger.schedule("default", "daily")
    assert same
    assert changed
    assert changed.schedule.rule.starts_at == START, "a change is no new beginning"
    assert (same.progress.version, same.schedule.file) == (2, 4), "the later file's, which no earlier one changes"
    apply(ledger, 5)
    assert there(ledger) == {"own": AT_NINE}


def test_what_was_deleted_and_added_by_hand_is_nobody_elses(ledger: Ledger) -> None:
    apply(ledger, 1, one())
    verbs(ledger).delete("default", "daily")
    verbs(ledger).add(one(repeat=AT_TEN))
    apply(ledger, 2)
    assert there(ledger) == {"daily": AT_TEN}


def test_a_file_of_another_queue_and_tenant_is_followed_there(ledger: Ledger) -> None:
    apply(ledger, 1, one(queue="imports", tenant="acme"))
    assert ledger.schedule("imports", "daily", "acme")
    changes = apply(ledger, 2, one())
    assert changes
    assert (changes.added, changes.deleted) == ((DAILY,), (Entry("imports", "acme", "daily"),))
    assert ledger.schedule("imports", "daily", "acme") is None


def test_a_lower_number_changes_nothing(ledger: Ledger) -> None:
    apply(ledger, 2, one())
    former = files(ledger)
    assert former.apply(file(1, one(repeat=AT_TEN), one("hourly"))) is None
    assert former.is_over
    assert there(ledger) == {"daily": AT_NINE}


def test_a_changed_file_with_the_same_number_is_only_told_of(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    apply(ledger, 3, one())
    assert apply(ledger, 3, one(repeat=AT_TEN), digest="other") is None
    assert "raise `number`" in caplog.text
    assert there(ledger) == {"daily": AT_NINE}


@pytest.mark.parametrize("verb", ["schedule", "put_schedule", "drop_schedule"])
@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_file_that_is_cut_off_is_applied_by_the_next_tick(
    ledger: Ledger, killed: Callable[[], None], verb: str, calls: int
) -> None:
    apply(ledger, 1, one("a"), one("b"), one("c"))
    wanted = file(2, one("c", AT_TEN), one("d"), one("e"))
    try:
        files(ledger, Interrupted(ledger, verb, killed, calls)).apply(wanted)
    except Killed:
        assert ledger.schedule_files().read().applied == 1
        assert files(ledger).apply(wanted) is not None
    assert there(ledger) == {"c": AT_TEN, "d": AT_NINE, "e": AT_NINE}
    assert ledger.schedule_files().read().applied == 2


def test_a_file_that_was_cut_off_is_undone_by_a_later_one(ledger: Ledger, killed: Callable[[], None]) -> None:
    with pytest.raises(Killed):
        files(ledger, Interrupted(ledger, "put_schedule", killed, 2)).apply(file(2, one("a"), one("b")))
    assert there(ledger) == {"a": AT_NINE}
    apply(ledger, 3, one())
    assert there(ledger) == {"daily": AT_NINE}


def calls_of(verb: str) -> Iterator[Any]:
    for calls in range(1, 5):
        yield pytest.param(verb, calls, id=f"{verb}-{calls}")


@pytest.mark.parametrize(
    ("verb", "calls"), [*calls_of("schedule"), *calls_of("put_schedule"), *calls_of("drop_schedule")]
)
def test_an_earlier_file_beside_a_later_one_undoes_nothing_of_it(
    ledger: Ledger, clock: HandClock, verb: str, calls: int
) -> None:
    apply(ledger, 1, one("a"), one("b"), one("c"), one("d"))
    later = file(3, one("a"), one("b", AT_TEN), one("d", AT_TEN), one("f"))
    wanted = {"a": AT_NINE, "b": AT_TEN, "d": AT_TEN, "f": AT_NINE}
    newer = files(ledger)
    between = Interrupted(ledger, verb, lambda: newer.apply(later) and None, calls)
    files(ledger, between).apply(file(2, one("a", AT_TEN), one("b"), one("e")))
    if verb == "schedule" and calls < 4:
        assert "e" not in there(ledger), "it was looked for once the later file had begun"
    newer.apply(later)
    kept = there(ledger)
    kept.pop("e", None)  # the earlier one may have added it since
    assert kept == wanted
    clock.advance(SETTLED_MS)
    newer.apply(later)
    assert there(ledger) == wanted
    assert newer.is_over


def test_what_is_over_a_quota_is_told_of_and_tried_again(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> None:
        raise QuotaExceeded("tenant_max_pending", 1_000)

    wanted = file(1, one("a"), one("b"))
    changes = files(ledger, Interrupted(ledger, "put_schedule", refuse)).apply(wanted)
    assert changes
    assert [entry.id for entry in changes.added] == ["b"]
    assert "schedule a of queue default is not applied" in caplog.text
    files(ledger).apply(wanted)
    assert set(there(ledger)) == {"a", "b"}


def test_a_file_with_a_wrong_schedule_changes_nothing_and_every_wrong_field_is_named(ledger: Ledger) -> None:
    wrong = file(1, one(), one("never", Cron("0 0 31 2 *")), one("odd", Cron("x")))
    with pytest.raises(InvalidInput) as caught:
        files(ledger).apply(wrong._replace(problems=(FieldError("third.kind", "is required"),)))
    assert [each.field for each in caught.value.problems] == ["third.kind", "never.repeat.cron", "odd.repeat.cron"]
    assert there(ledger) == {}
    assert ledger.schedule_files().read() == FileState()


def test_a_file_puts_a_schedule_as_any_caller_would(ledger: Ledger) -> None:
    apply(ledger, 1, one())
    kept = ledger.schedule("default", "daily")
    assert kept
    assert (kept.schedule.by, kept.schedule.file, key_of(kept.schedule)) == ("file", 1, DAILY)
    assert kept.schedule.rule.starts_at == START
    assert verbs(ledger).put(file(1, one()).schedules[0], lambda: False) is Put.KEPT


def test_a_file_that_names_no_fold_leaves_that_of_an_earlier_release(ledger: Ledger) -> None:
    hourly = one("hourly", Cron("0 * * * *"))
    former = replace(hourly, rule=replace(hourly.rule, gap=Gap.SHIFT, fold=Fold.FIRST))
    apply(ledger, 1, former)
    apply(ledger, 2, hourly)
    rule = ledger.schedule("default", "hourly").schedule.rule  # type: ignore[union-attr]
    assert (rule.gap, rule.fold) == (Gap.SHIFT, Fold.FIRST)
    apply(ledger, 3, replace(hourly, payload='{"a":1}'))
    rule = ledger.schedule("default", "hourly").schedule.rule  # type: ignore[union-attr]
    assert (rule.gap, rule.fold) == (Gap.AUTO, Fold.AUTO), "what a file changes, it writes whole"
