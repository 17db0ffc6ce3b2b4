"""Short storms of faults over tasks and schedules: nothing is lost, undone, early, or run again without a reason."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.matrix import LENGTHY, MATRIX
from tests.whole.storm.plan import Fault, Plan, Size, Stage, drawn
from tests.whole.storm.run import Outcome, run

SEED = 20_261
SHORT = Size(tasks=300, schedules=30, seconds=18)
SHORT_FAULTS = ("scripts-flushed", "redis-killed", "process-killed", "replies-cut", "worker-stopped", "right-taken")
"""Faults after which no task waits for the end of a lease of 30 s; `make chaos` and the matrix have the others too."""
FIRST_S, EACH_S, LASTS_S = 3.0, 2.5, 1.0


def passed(plan: Plan, folder: Path, *, functions: bool = True) -> Outcome:
    """The outcome of a storm in which nothing was wrong."""
    outcome = run(plan, folder, functions=functions)
    assert outcome.verdict.wrong == []
    assert outcome.settled_s >= 0
    return outcome


def test_a_short_storm_over_one_redis_and_workers_loses_and_undoes_nothing(tmp_path: Path) -> None:
    whole = drawn(SEED, Stage.ALONE, SHORT, broker=False, functions=False)
    faults = (Fault(FIRST_S + EACH_S * n, name, LASTS_S, n) for n, name in enumerate(SHORT_FAULTS))
    outcome = passed(replace(whole, faults=tuple(faults)), tmp_path, functions=False)
    assert outcome.verdict.counts["tasks"] == SHORT.tasks
    assert [name for name, _, _ in outcome.faults] == [*SHORT_FAULTS]


@MATRIX
@LENGTHY
@pytest.mark.parametrize("stage", [Stage.SENTINEL, Stage.CLUSTER])
def test_a_storm_over_servers_that_fail_over_loses_and_undoes_nothing(stage: Stage, tmp_path: Path) -> None:
    outcome = passed(drawn(SEED, stage, Size(400, 40, 40), broker=False), tmp_path)
    assert outcome.faults
