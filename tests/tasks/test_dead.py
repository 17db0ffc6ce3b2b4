"""Dead tasks by their errors: what is the same but for numbers and ids is one group, and an answer is bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duecourse.ledger.many_tasks import (
    MAX_GROUPS,
    BulkProgress,
    DeadGroup,
    Death,
    DeathsFound,
    group_deaths,
    pattern_of,
)
from duecourse.ledger.task import Status, cut_detail
from duecourse.queues.http import show_dead

PIECES = (
    "https://", "h1", "/", "?", "=", "&", "#", "token", "secret=", "5", "123", " ", "'", '"', ":", "{", "}", "<pass>",
    "@", ";", "Bearer ", "abcdefghijklmnop1234", "•••", "x.py:9", " at ", "eyJabcdefgh12", ".", "E:", "key",
)  # fmt: skip
"""Parts of errors with addresses, fields and credentials."""


@pytest.mark.parametrize(
    ("error", "pattern"),
    [
        ("KeyError: 'prize' at app.py:9", "KeyError: 'prize' at app.py:9"),
        ("KeyError: 'order-17' at app.py:9", "KeyError: 'order-#' at app.py:9"),
        ("ValueError: order 17 is 3.50 short at jobs/bill.py:12", "ValueError: order # is # short at jobs/bill.py:12"),
        ("S3Error: bucket b2", "S3Error: bucket b#"),
        ("no task 9f86d081884c7d65 at app.py:3", "no task # at app.py:3"),
        ("no 1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed", "no #"),
        ("<app.Order object at 0x7f3a2c1b90> has no price", "<app.Order object at #> has no price"),
        ("cursor abcDEF0123456789_xyzABC is old", "cursor # is old"),
        ("late since 2026-11-28T02:00:00.123Z", "late since #"),
        ("https://a.example answered 503", "https://a.example answered 503"),
        ("https://a.example answered 404: no order 17", "https://a.example answered 404: no order #"),
        ("[Errno 111] Connection refused", "[Errno 111] Connection refused"),
        ("status 500, order 9", "status 500, order #"),
        ("deadbeef is not a word without a digit", "deadbeef is not a word without a digit"),
        ("past its deadline", "past its deadline"),
        ("", ""),
    ],
)
def test_an_error_is_grouped_without_what_differs_from_task_to_task(error: str, pattern: str) -> None:
    assert pattern_of(error) == pattern
    assert pattern_of(pattern) == pattern


SECRET = "AbCdEfGhIjKlMnOp"


@pytest.mark.parametrize(
    ("error", "pattern"),
    [
        ("https://h1.example/o/12/a=b answered 404", "https://h#.example/o/#/a=b answered 404"),
        (f"whsec_abc+d7/{SECRET} is wrong", "# is wrong"),
        (f"https://u1:{SECRET}@h9.example/ is away", "https://#@h#.example/ is away"),
    ],
)
def test_a_group_shows_no_credential_and_its_text_finds_its_tasks(error: str, pattern: str) -> None:
    assert shown(error) == pattern
    assert finds(pattern, error)


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join).map(cut_detail))
def test_the_filter_of_a_group_finds_every_task_of_it(error: str) -> None:
    assert finds(shown(error), error)


def shown(error: str) -> str:
    """Text of the group of an error, in the answer."""
    [group] = show_dead(group_deaths(DeathsFound([death(1, error)], None)))["errors"]
    return group["error"]


def finds(pattern: str, error: str) -> bool:
    """True if the filter of lua/modules/walk.lua takes the error: its parts are there, in their order."""
    at = 0
    for part in filter(None, pattern.split("#")):
        found = error.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


@pytest.mark.parametrize("text", ["9" * 400, "a-" * 200, "9-a" * 133, "0x" * 200, "status " * 57, " at " * 100])
def test_the_longest_error_is_grouped_at_once(text: str) -> None:
    assert len(pattern_of(text)) <= 400


def death(n: int, error: str, kind: str = "report") -> Death:
    return Death(0, f"t{n}", n, kind, error)


def test_a_group_has_its_number_first_and_last_death_and_the_newest_task() -> None:
    found = [death(3, "no 1"), death(5, "no 2"), death(4, "no"), death(1, "no 3"), death(9, "no 4", "bill")]
    assert group_deaths(DeathsFound(found, None)).groups == [
        DeadGroup("no #", "report", 3, 1, 5, "t5"),
        DeadGroup("no", "report", 1, 4, 4, "t4"),
        DeadGroup("no #", "bill", 1, 9, 9, "t9"),
    ]


def test_an_answer_has_a_bounded_number_of_groups_and_goes_on_behind_them() -> None:
    words = [f"no {'x' * n}" for n in range(1, MAX_GROUPS + 2)]
    deaths = [death(n, error) for n, error in enumerate([*words[:MAX_GROUPS], words[0], words[MAX_GROUPS]])]
    found = group_deaths(DeathsFound(deaths, BulkProgress(1, Status.DEAD)))
    assert (len(found.groups), sum(one.count for one in found.groups)) == (MAX_GROUPS, MAX_GROUPS + 1)
    assert found.next == BulkProgress(0, Status.DEAD, MAX_GROUPS, f"t{MAX_GROUPS}")
