"""A damaged folder of a ledger: opening it changes nothing in it, and `duecourse repair` brings its tasks back."""

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from duecourse.errors import StoreMisused
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.embedded.leveldb import LAYOUT_KEY, LOCK, LevelDisk
from duecourse.ledger.keys import keys_of
from duecourse.ledger.queue_history import WideLine
from duecourse.ledger.task import Status
from duecourse_local.backup.leveldb_repair import repair
from tests.support.commands import in_this_process
from tests.support.ledger import SHARD, add, stored_task
from tests.support.level_ledger import level_ledger

pytestmark = pytest.mark.slow

plyvel = pytest.importorskip("plyvel", reason="there is no wheel for this version of Python")

TASKS = 60
OURS = {LOCK, "LOCK", "LOG", "LOG.old"}
"""Files without content of the ledger: who has the folder, and what LevelDB did."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed ledger of TASKS tasks, in tables and in a log."""
    for first in (0, TASKS // 2):
        with level_ledger(tmp_path / "ledger") as ledger:
            for number in range(first, first + TASKS // 2):
                add(ledger, f"t-{number}", payload='"' + "x" * 3000 + '"', delay_ms=3_600_000)
    return tmp_path / "ledger"


def contents(folder: Path) -> dict[str, str]:
    files = {path.name: path for path in folder.iterdir() if path.name not in OURS}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def one(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: path.stat().st_size)


def without(pattern: str) -> Callable[[Path], None]:
    return lambda folder: one(folder, pattern).unlink()


def half(pattern: str) -> Callable[[Path], None]:
    def cut(folder: Path) -> None:
        path = one(folder, pattern)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return cut


def flipped(pattern: str, after: bytes = b"") -> Callable[[Path], None]:
    """Another byte than there was: soon after some bytes, where they come last, else in the first half."""

    def flip(folder: Path) -> None:
        path = one(folder, pattern)
        data = bytearray(path.read_bytes())
        data[data.rindex(after) + len(after) + 4 if after else len(data) // 3] ^= 0xFF
        path.write_bytes(data)

    return flip


def overwritten(folder: Path) -> None:
    (folder / "CURRENT").write_text("nonsense")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "no CURRENT": without("CURRENT"),
    "CURRENT overwritten": overwritten,
    "no MANIFEST": without("MANIFEST-*"),
    "no table": without("*.ldb"),
    "no log": without("*.log"),
    "table cut": half("*.ldb"),
    "table flipped": flipped("*.ldb"),
    "log flipped": flipped("*.log", after=b"numbers"),
    "MANIFEST flipped": flipped("MANIFEST-*"),
}
WHOLE = {"no CURRENT", "CURRENT overwritten", "no MANIFEST", "MANIFEST flipped", "log flipped"}
"""Damages that took no task; of a log, LevelDB's repair takes a record whose checksum is wrong."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_opening_a_damaged_folder_names_repair_and_loses_nothing(damage: str, folder: Path) -> None:
    DAMAGES[damage](folder)
    before = contents(folder)
    for _ in range(2):
        with pytest.raises(StoreMisused, match=f"leveldb://{folder}: damaged .*`duecourse repair {folder}` makes"):
            EmbeddedLedger(disk=LevelDisk(str(folder)))
        # A table's content is known once it is read: LevelDB has then put its log into another table.
        assert damage == "table flipped" or contents(folder) == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_repair_works_on_a_copy_in_which_tasks_are_back(damage: str, folder: Path) -> None:
    DAMAGES[damage](folder)
    before, copy = contents(folder), folder.with_name("copy")
    repaired = repair(folder, copy)
    assert contents(folder) == before
    with level_ledger(copy) as ledger:
        found = [task for number in range(TASKS) if (task := ledger.get("default", f"t-{number}"))]
        assert len(found) == repaired.tasks == sum(ledger.stats(SHARD)[:1])
        assert repaired.tasks == TASKS if damage in WHOLE else 0 < repaired.tasks < TASKS
        assert {task.status for task in found} == {Status.SCHEDULED}


@pytest.mark.parametrize("score", [b"soon", b"nan"])
def test_an_entry_that_cannot_be_read_names_repair_which_leaves_it_out(folder: Path, score: bytes) -> None:
    with plyvel.DB(str(folder)) as database:
        name = next(name for name, _ in database if name.startswith(b"s") and b":due" in name)
        database.put(name, score)
        database.put(b"x-what", b"1")
    with pytest.raises(StoreMisused, match=r"damaged .*is no number.*duecourse repair"):
        EmbeddedLedger(disk=LevelDisk(str(folder)))
    repaired = repair(folder, folder.with_name("copy"))
    assert repaired == (TASKS, 2, 0)
    with level_ledger(folder.with_name("copy")) as ledger:
        assert stored_task(ledger, "t-1").status is Status.SCHEDULED


def test_repair_finds_tasks_whose_shard_and_layout_are_lost(folder: Path) -> None:
    with plyvel.DB(str(folder)) as database:
        for name in [name for name, _ in database if b":shards" in name or name == LAYOUT_KEY]:
            database.delete(name)
    assert repair(folder, folder.with_name("copy")).tasks == TASKS
    with level_ledger(folder.with_name("copy")) as ledger:
        assert ledger.shards() == [SHARD]


def test_repair_leaves_out_a_task_whose_name_is_damaged(folder: Path) -> None:
    with plyvel.DB(str(folder)) as database:
        database.put(next(name for name, _ in database if b":tasks" in name) + b"\xce", b"record")
    assert repair(folder, folder.with_name("copy")).tasks == TASKS


@pytest.mark.parametrize("lost", [b"\xff\xff\xff", b""], ids=["damaged", "whole"])
def test_repair_keeps_numbers_over_time_that_can_be_read(folder: Path, lost: bytes) -> None:
    keys = keys_of("duecourse", SHARD)
    with level_ledger(folder) as ledger:
        ledger.client.execute_command("HSET", keys.history, "days", b"\x00\x00\x50\x00" + b"\x00\x01\x1c" + lost)
    repair(folder, folder.with_name("copy"))
    with level_ledger(folder.with_name("copy")) as ledger:
        [found] = ledger.history_of([SHARD])
    assert (found.lines["days"], found.minute.by_place) == (
        ([WideLine(20_480, 1, {0: 7})], {0: 60}) if not lost else ([], {})
    )


def test_another_programs_database_is_known_before_it_is_opened(tmp_path: Path) -> None:
    with plyvel.DB(str(tmp_path / "theirs"), create_if_missing=True) as theirs:
        theirs.put(b"a", b"1")
    before = contents(tmp_path / "theirs")
    with pytest.raises(StoreMisused, match="another program's LevelDB"):
        LevelDisk(str(tmp_path / "theirs"))
    assert contents(tmp_path / "theirs") == before
    assert not (tmp_path / "theirs" / LOCK).exists()


def test_a_torn_end_of_the_log_is_no_damage(folder: Path) -> None:
    """A process that was killed within a write, which it has not acknowledged."""
    path = one(folder, "*.log")
    path.write_bytes(path.read_bytes()[:-10])
    with level_ledger(folder) as ledger:
        assert stored_task(ledger, "t-1").status is Status.SCHEDULED


def test_the_command_says_what_it_found_and_how_to_use_it(folder: Path) -> None:
    (folder / "CURRENT").unlink()
    done = in_this_process("repair", str(folder))
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        f"{TASKS} tasks found: {folder}.repaired",
        f"To use it: --store leveldb://{folder}.repaired, or put it in the place of {folder}",
    ]
    again = in_this_process("repair", str(folder))
    assert again.exit_code == 2
    assert f"{folder}.repaired exists already: remove it, or give --output" in again.output


def test_repair_rejects_a_folder_that_is_open_or_holds_no_ledger(folder: Path, tmp_path: Path) -> None:
    with level_ledger(folder):
        done = in_this_process("repair", str(folder))
        assert done.exit_code == 2
        assert "is in use by process" in done.output
    (tmp_path / "empty").mkdir()
    done = in_this_process("repair", str(tmp_path / "empty"))
    assert done.exit_code == 2
    assert "holds no ledger" in done.output
    assert not (tmp_path / "empty.repaired").exists()


def test_a_repair_that_fails_leaves_no_copy_and_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "000003.log").touch()
    done = in_this_process("repair", str(tmp_path / "empty"))
    assert done.exit_code == 2, done.output
    assert "no task, and no layout of a ledger, is left" in done.output
    assert not (tmp_path / "empty.repaired").exists()
    monkeypatch.setitem(sys.modules, "plyvel", None)
    done = in_this_process("repair", str(tmp_path / "empty"))
    assert done.exit_code == 2, done.output
    assert "needs LevelDB" in done.output
