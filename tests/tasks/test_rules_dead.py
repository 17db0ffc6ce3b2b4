"""Why tasks died: read in bounded steps, by kind, group, error and time, of one tenant; the filter of other verbs."""

import pytest

from duecourse.ledger.many_tasks import Act, Bulk, Death, Deaths, DeathsFound, TaskFilter
from duecourse.ledger.store.ledger import Ledger
from duecourse.ledger.task import Ending, RetryPolicy, Status
from tests.support.clock import HandClock
from tests.support.ledger import SHARD, claim, new, settle

QUEUE = SHARD.queue
PRIZE, AWAY = "KeyError: 'prize' at app.py:9", "OSError: host 17 is away at app.py:12"


def die(store: Ledger, id: str, error: str = PRIZE, **fields: object) -> None:
    """Let one task die of an error."""
    store.add([new(id, **{"retry": RetryPolicy(max_attempts=1)} | fields)])
    [task] = claim(store)
    settle(store, task, Ending.RETRY, detail=error)


def deaths(store: Ledger, limit: int = 1_000, tenant: str = "-", **fields: object) -> list[str]:
    """Ids of the deaths of every call."""
    found = [store.deaths(QUEUE, Deaths(limit=limit)._replace(**fields), None, tenant)]
    while found[-1].next:
        found.append(store.deaths(QUEUE, Deaths(limit=limit)._replace(**fields), found[-1].next, tenant))
    assert all(len(one.deaths) <= limit for one in found)
    return [death.id for one in found for death in one.deaths]


def test_a_death_has_its_time_kind_and_error(store: Ledger, clock: HandClock) -> None:
    store.add([new("lives", delay_ms=9_999)])
    die(store, "a", kind="report")
    assert store.deaths(QUEUE, Deaths()) == DeathsFound([Death(0, "a", clock.at, "report", PRIZE)], None)


def test_deaths_come_oldest_first_and_each_once(store: Ledger, clock: HandClock) -> None:
    for id in "cab":
        die(store, id)
        clock.advance(1)
    for limit in (1, 2, 3, 9):
        assert deaths(store, limit) == ["c", "a", "b"]


def test_deaths_are_of_one_kind_group_error_time_and_tenant(store: Ledger, clock: HandClock) -> None:
    die(store, "a")
    clock.advance(10)
    die(store, "b", AWAY, kind="report", group="g")
    die(store, "c", tenant="acme")
    assert deaths(store) == ["a", "b"]
    assert deaths(store, kind="report") == deaths(store, group="g") == deaths(store, error="host 17") == ["b"]
    assert deaths(store, since_at=clock.at) == ["b"]
    assert deaths(store, since_at=clock.at + 1) == []
    assert deaths(store, tenant="acme") == ["c"]
    assert deaths(store, group="g", error="prize") == []


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
def test_an_error_filter_is_text_in_which_a_hash_is_any_text(store: Ledger, error: str, fits: bool) -> None:
    die(store, "a", AWAY)
    assert deaths(store, error=error) == (["a"] if fits else [])
    assert [task.id for task in store.page(QUEUE, TaskFilter(error=error), None, 9).tasks] == (["a"] if fits else [])
    assert store.bulk(QUEUE, Bulk(Act.COUNT, (Status.DEAD,), error=error)).tasks == fits
    assert store.bulk(QUEUE, Bulk(Act.DELETE, (Status.DEAD,), error=error)).tasks == fits


def test_an_error_is_that_of_the_newest_failed_run(store: Ledger, clock: HandClock) -> None:
    store.add([new("a")])
    for error in ("first", "second"):
        [task] = claim(store)
        settle(store, task, Ending.RETRY, detail=error, delay_ms=1)
        clock.advance(1)
    for error, found in (("first", []), ("second", ["a"])):
        for wanted in (TaskFilter(error=error), TaskFilter(Status.SCHEDULED, error=error)):
            assert [task.id for task in store.page(QUEUE, wanted, None, 9).tasks] == found
    [task] = claim(store)
    settle(store, task, Ending.DONE)
    assert store.page(QUEUE, TaskFilter(error="second"), None, 9).tasks == []


def test_since_counts_from_the_add_or_from_the_end(store: Ledger, clock: HandClock) -> None:
    store.add([new("waits", delay_ms=90_000), new("ends", delay_ms=90_000)])
    clock.advance(1_000)
    store.cancel(QUEUE, ["ends"])
    for since_at, found in ((clock.at, ["ends"]), (clock.at - 1_000, ["waits", "ends"]), (clock.at + 1, [])):
        assert [task.id for task in store.page(QUEUE, TaskFilter(since_at=since_at), None, 9).tasks] == found


@pytest.mark.slow
def test_deaths_are_found_however_many_there_are(store: Ledger) -> None:
    ids = [f"t{n:04}" for n in range(1_200)]
    for start in range(0, len(ids), 400):
        store.add([new(id) for id in ids[start : start + 400]])
        for task in claim(store, 400):
            settle(store, task, Ending.DROP, detail="rare" if task.id == "t1100" else "usual")
    assert sorted(deaths(store)) == ids
    assert deaths(store, 7, error="rare") == ["t1100"]
