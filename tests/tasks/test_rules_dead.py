"""Why tasks died: read in bounded steps, by kind, group, error and time, of one tenant; the filter of other verbs."""

import pytest

from duecourse.ledger.many_tasks import Act, Bulk, Death, Deaths, DeathsFound, TaskFilter
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Ending, RetryPolicy, Status
from tests.support.clock import HandClock
from tests.support.ledger import SHARD, claim, new, settle

QUEUE = SHARD.queue
PRIZE, AWAY = "KeyError: 'prize' at app.py:9", "OSError: host 17 is away at app.py:12"


def die(ledger: Ledger, id: str, error: str = PRIZE, **fields: object) -> None:
    """Let one task die of an error."""
    ledger.add([new(id, **{"retry": RetryPolicy(max_attempts=1)} | fields)])
    [task] = claim(ledger)
    settle(ledger, task, Ending.RETRY, detail=error)


def deaths(ledger: Ledger, limit: int = 1_000, tenant: str = "-", **fields: object) -> list[str]:
    """Ids of the deaths of every call."""
    found = [ledger.deaths(QUEUE, Deaths(limit=limit)._replace(**fields), None, tenant)]
    while found[-1].next:
        found.append(ledger.deaths(QUEUE, Deaths(limit=limit)._replace(**fields), found[-1].next, tenant))
    assert all(len(one.deaths) <= limit for one in found)
    return [death.id for one in found for death in one.deaths]


def test_a_death_has_its_time_kind_and_error(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("lives", delay_ms=9_999)])
    die(ledger, "a", kind="report")
    assert ledger.deaths(QUEUE, Deaths()) == DeathsFound([Death(0, "a", clock.at, "report", PRIZE)], None)


def test_deaths_come_oldest_first_and_each_once(ledger: Ledger, clock: HandClock) -> None:
    for id in "cab":
        die(ledger, id)
        clock.advance(1)
    for limit in (1, 2, 3, 9):
        assert deaths(ledger, limit) == ["c", "a", "b"]


def test_deaths_are_of_one_kind_group_error_time_and_tenant(ledger: Ledger, clock: HandClock) -> None:
    die(ledger, "a")
    clock.advance(10)
    die(ledger, "b", AWAY, kind="report", group="g")
    die(ledger, "c", tenant="acme")
    assert deaths(ledger) == ["a", "b"]
    assert deaths(ledger, kind="report") == deaths(ledger, group="g") == deaths(ledger, error="host 17") == ["b"]
    assert deaths(ledger, since_at=clock.at) == ["b"]
    assert deaths(ledger, since_at=clock.at + 1) == []
    assert deaths(ledger, tenant="acme") == ["c"]
    assert deaths(ledger, group="g", error="prize") == []


@pytest.mark.parametrize(
    ("error", "fits"),
    [
        (AWAY, True),
        ("host 17", True),
        ("OSError: host # is away at app.py:12", True),
        ("#away#12", True),
        ("#", True),
        ("away#host", False),
        ("host 18", False),
        ("oserror", False),
        ("%d+", False),
        ("host # host", False),
    ],
)
def test_an_error_filter_is_text_in_which_a_hash_is_any_text(ledger: Ledger, error: str, fits: bool) -> None:
    die(ledger, "a", AWAY)
    assert deaths(ledger, error=error) == (["a"] if fits else [])
    assert [task.id for task in ledger.page(QUEUE, TaskFilter(error=error), None, 9).tasks] == (["a"] if fits else [])
    assert ledger.bulk(QUEUE, Bulk(Act.COUNT, (Status.DEAD,), error=error)).tasks == fits
    assert ledger.bulk(QUEUE, Bulk(Act.DELETE, (Status.DEAD,), error=error)).tasks == fits


def test_an_error_is_that_of_the_newest_failed_run(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("a")])
    for error in ("first", "second"):
        [task] = claim(ledger)
        settle(ledger, task, Ending.RETRY, detail=error, delay_ms=1)
        clock.advance(1)
    for error, found in (("first", []), ("second", ["a"])):
        for wanted in (TaskFilter(error=error), TaskFilter(Status.SCHEDULED, error=error)):
            assert [task.id for task in ledger.page(QUEUE, wanted, None, 9).tasks] == found
    [task] = claim(ledger)
    settle(ledger, task, Ending.DONE)
    assert ledger.page(QUEUE, TaskFilter(error="second"), None, 9).tasks == []


def test_since_counts_from_the_add_or_from_the_end(ledger: Ledger, clock: HandClock) -> None:
    ledger.add([new("waits", delay_ms=90_000), new("ends", delay_ms=90_000)])
    clock.advance(1_000)
    ledger.cancel(QUEUE, ["ends"])
    for since_at, found in ((clock.at, ["ends"]), (clock.at - 1_000, ["waits", "ends"]), (clock.at + 1, [])):
        assert [task.id for task in ledger.page(QUEUE, TaskFilter(since_at=since_at), None, 9).tasks] == found


@pytest.mark.slow
def test_deaths_are_found_however_many_there_are(ledger: Ledger) -> None:
    ids = [f"t{n:04}" for n in range(1_200)]
    for start in range(0, len(ids), 400):
        ledger.add([new(id) for id in ids[start : start + 400]])
        for task in claim(ledger, 400):
            settle(ledger, task, Ending.DROP, detail="rare" if task.id == "t1100" else "usual")
    assert sorted(deaths(ledger)) == ids
    assert deaths(ledger, 7, error="rare") == ["t1100"]
