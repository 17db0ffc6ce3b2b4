"""The calendar beside an oracle that walks UTC minute by minute, at every change of any clock from 2020 to 2040."""

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import takewhile
from random import Random

import pytest

from duecourse.ledger.schedule import Cron, Fold, Gap, Rule
from duecourse.schedules.calendar import Calendar
from tests.support.calendar_cases import REACH, near
from tests.support.calendar_oracle import Expression, Transition, Window, transitions, window, zone_names
from tests.support.matrix import LENGTHY, MATRIX, in_turn

pytestmark = [LENGTHY, pytest.mark.slow]

CALENDAR = Calendar()
FIVE = 5


@cache
def changes(share: int) -> list[Transition]:
    """Every distinct change of one zone in so many: of those whose clocks show the same before and after, one."""
    found: dict[tuple[datetime, datetime], Transition] = {}
    for name in zone_names()[::share]:
        for one in transitions(name, 2020, 2040):
            found.setdefault(one.shows(), one)
    return list(found.values())


def assert_agree(text: str, name: str, span: Window) -> None:
    expected = span.fires(Expression(text))
    assert any(expected.values()), (text, name)
    first, last = span.minutes[0], span.minutes[-1]
    for (gap, fold), times in expected.items():
        rule = Rule(Cron(text), first, name, gap=Gap(gap), fold=Fold(fold))
        found = list(takewhile(lambda at: at <= last, CALENDAR.times(rule, first - 1)))
        assert found == times, (text, name, gap, fold)


# One zone in so many.
@pytest.mark.parametrize(("share", "least"), in_turn((24, 100), (1, 2_000)))
def test_peers_9_times_agree_with_a_walk_of_every_minute_at_each_change_of_a_clock(share: int, least: int) -> None:
    expressions = set()
    for one in changes(share):
        chance, span = Random(f"{one.zone} {one.at}"), window(one.zone, one.at - REACH, one.at + REACH)
        for text in [near(one, chance) for _ in range(FIVE)]:
            assert_agree(text, one.zone, span)
            expressions.add(text)
    assert len(expressions) >= least, len(changes(share))


@MATRIX
def test_the_changes_of_known_zones_are_among_those_that_are_met() -> None:
    known = {(one.at, one.after - one.before) for one in changes(1)}
    hour = timedelta(hours=1)
    assert (datetime(2026, 3, 29, 1, tzinfo=UTC), hour) in known
    assert (datetime(2026, 4, 4, 15, tzinfo=UTC), -hour / 2) in known  # Lord Howe
    assert (datetime(2026, 3, 29, 1, tzinfo=UTC), 2 * hour) in known  # Troll
