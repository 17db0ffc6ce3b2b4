"""The outcomes that a handler returns: values that nobody mistakes for each other, and nobody changes."""

from dataclasses import FrozenInstanceError

import pytest

from duecourse import Again, Done, Drop, Retry
from duecourse.domain.outcomes import Outcome

OUTCOMES: list[Outcome] = [Done("x"), Drop("x"), Again("x"), Retry("x"), Done(), Again(), Retry()]


def test_no_two_kinds_of_outcome_are_equal() -> None:
    assert [one for one in OUTCOMES if OUTCOMES.count(one) > 1] == []
    assert len(set(OUTCOMES)) == len(OUTCOMES)
    assert Done("x") == Done("x")
    assert Done("x") != ("x",)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_cannot_be_changed(outcome: Outcome) -> None:
    name = type(outcome).__slots__[0]
    with pytest.raises(FrozenInstanceError):
        setattr(outcome, name, "y")
    with pytest.raises((AttributeError, TypeError)):
        outcome.other = 1  # type: ignore[union-attr]
