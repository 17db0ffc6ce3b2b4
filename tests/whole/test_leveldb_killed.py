"""What was answered is still there when a process that writes to a folder is killed, at whatever point."""

import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import Status
from tests.support.ledger import SHARD
from tests.support.level_filler import AFTERWARDS
from tests.support.level_ledger import level_ledger
from tests.support.matrix import LENGTHY, in_turn
from tests.support.project import ROOT

pytestmark = LENGTHY

ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'layers' / 'core'}{os.pathsep}{ROOT}"}
LONGEST_S = 0.02
Answered = dict[str, set[str]]


def work_and_be_killed(folder: Path, name: str, lines: int, answered: Answered) -> None:
    """Let a child answer so often, kill it, and take down all that it answered."""
    command = [sys.executable, "-m", "tests.support.level_worker", str(folder), name]
    with subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        assert child.stdout.readline() == "open\n"
        heard = [child.stdout.readline() for _ in range(lines)]
        time.sleep(random.uniform(0, LONGEST_S))  # for a kill at any moment, and not only after an answer
        child.kill()
        heard += [line for line in child.stdout if line.endswith("\n")]
    for line in heard:
        what, *ids = line.split()
        answered[what].update(ids)


def check_answers(ledger: EmbeddedLedger, answered: Answered) -> None:
    """Fail where something that was answered is not so."""
    batches = {batch_of(id) for ids in answered.values() for id in ids}
    tasks = {task.id: task for batch in batches for task in ledger.group(SHARD.queue, batch)}
    added = {batch_of(id) for id in answered["added"]}
    assert {id for id in tasks if batch_of(id) in added} == answered["added"]
    assert {tasks[id].status for id in answered["done"]} == {Status.DONE}
    assert {id for id in answered["leased"] if tasks[id].run == 0} == set()


def batch_of(id: str) -> str:
    return id.rpartition("-")[0]


@pytest.mark.parametrize("kills", in_turn(4, 16))
def test_nothing_answered_is_missing_however_often_the_process_is_killed(kills: int, tmp_path: Path) -> None:
    rng, answered = random.Random(7), defaultdict[str, set[str]](set)
    folder = tmp_path / "ledger"
    for kill in range(kills):
        work_and_be_killed(folder, f"k{kill}", rng.randint(1, 30), answered)
        with level_ledger(folder) as ledger:  # whose keys are all looked at as it is closed
            check_answers(ledger, answered)
    assert len(answered["done"]) > 30 * kills


def test_a_full_disk_refuses_loses_nothing_and_is_written_to_again_when_there_is_room(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.level_filler", str(tmp_path / "ledger")]
    said = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout
    answers = [line.split() for line in said.splitlines()]
    refused = {id for what, id in answers if what == "refused"}
    added = {id for what, id in answers if what == "added"}
    assert {"full-0", "full-1", "full-2"} < refused
    assert {f"after-{number}" for number in range(AFTERWARDS)} <= added
    with level_ledger(tmp_path / "ledger") as ledger:
        assert {id for id in added if ledger.get(SHARD.queue, id) is None} == set()
