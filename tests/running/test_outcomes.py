"""The outcomes that a handler returns: values that nobody mistakes for each other."""

import pytest

from duecourse import Again, Done, Drop, Retry
from duecourse.ledger.task import Outcome

OUTCOMES: list[Outcome] = [Done("x"), Drop("x"), Again("x"), Retry("x"), Done(), Again(), Retry()]


def test_no_two_kinds_of_outcome_are_equal() -> None:
    assert [one for one in OUTCOMES if OUTCOMES.count(one) > 1] == []
    assert len(set(OUTCOMES)) == len(OUTCOMES)
    assert Done("x") == Done("x")
    assert Done("x") != ("x",)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_has_no_fields_but_its_own(outcome: Outcome) -> None:
    with pytest.raises(AttributeError, match="other"):
        outcome.other = 1  # type: ignore[union-attr]
