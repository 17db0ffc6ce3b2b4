"""The ledger in a folder: who may open it, what outlives it, and what it says where it cannot be had."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from duecourse import open_ledger
from duecourse.errors import OtherVersion, StoreInUse, StoreMisused, StoreUnavailable
from duecourse.ledger.embedded.in_process_redis import ValueLocation
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.embedded.leveldb import LAYOUT, LAYOUT_KEY, LOCK, LevelDisk
from duecourse.ledger.layout import VERSION
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.task import Ending, Status
from duecourse.settings import Settings
from tests.support.ledger import SHARD, add, claim, new, settle, stored_task
from tests.support.level_ledger import level_ledger

plyvel = pytest.importorskip("plyvel", reason="there is no wheel for this version of Python")


def test_what_was_answered_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    with level_ledger(tmp_path / "ledger") as ledger:
        add(ledger, "later", delay_ms=60_000)
        add(ledger, "done")
        settle(ledger, claim(ledger)[0], Ending.DONE, result="1")
        before = ledger.stats(SHARD)
    with level_ledger(tmp_path / "ledger") as ledger:
        assert [stored_task(ledger, id).status for id in ("later", "done")] == [Status.SCHEDULED, Status.DONE]
        assert ledger.stats(SHARD)[:7] == before[:7]
        assert ledger.shards() == [SHARD]


def test_each_change_is_one_synced_write(tmp_path: Path) -> None:
    written: list[dict[str, object]] = []

    class Listening:
        closed = False

        def __init__(self, below: object) -> None:
            self.below = below

        def __getattr__(self, name: str) -> object:
            return getattr(self.below, name)

        def write_batch(self, **how: object) -> object:
            written.append(how)
            return self.below.write_batch(**how)  # type: ignore[attr-defined]

    below = LevelDisk(str(tmp_path / "ledger"))
    below._db = Listening(below._db)
    ledger = EmbeddedLedger(disk=below)
    add(ledger, "first")
    written.clear()  # the shard's place in the registry too
    ledger.add([new(f"t-{n}") for n in range(10)])
    tasks = claim(ledger)
    settle(ledger, tasks[0], Ending.DONE)
    assert written == [{"transaction": True, "sync": True}] * 3
    ledger.stats(SHARD)
    ledger.get("default", "t-1")
    assert len(written) == 3, "a look writes nothing"
    ledger.close()


class Unsynced(LevelDisk):
    """A disk that says of a write that it failed, and has it all the same: its sync failed."""

    fails = False

    def save(self, writes: Mapping[ValueLocation, bytes | float | None]) -> None:
        super().save(writes)
        if self.fails:
            raise StoreUnavailable


@pytest.mark.parametrize("failures", [1, 2])
def test_what_follows_a_write_that_failed_is_true_though_the_disk_has_that_write(tmp_path: Path, failures: int) -> None:
    disk = Unsynced(str(tmp_path / "ledger"))
    ledger = EmbeddedLedger(disk=disk)
    add(ledger)
    disk.fails = True
    for _ in range(failures):
        with pytest.raises(StoreUnavailable):
            claim(ledger)
    disk.fails = False
    ledger.cancel("default", ["a"])
    ledger.close()
    with level_ledger(tmp_path / "ledger") as again:
        assert stored_task(again).status is Status.CANCELLED
        assert again.stats(SHARD).leased == 0


@pytest.mark.slow
def test_a_second_opener_is_told_who_has_the_folder_and_what_to_do(tmp_path: Path) -> None:
    with level_ledger(tmp_path / "ledger"):
        problem = rf"{tmp_path}/ledger is in use by process {os.getpid()}.*another folder"
        with pytest.raises(StoreInUse, match=problem):
            LevelDisk(str(tmp_path / "ledger"))
        code = f"from duecourse.ledger.embedded.leveldb import LevelDisk; LevelDisk({str(tmp_path / 'ledger')!r})"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert f"StoreInUse: leveldb://{tmp_path}/ledger is in use by process {os.getpid()}" in other.stderr
    with level_ledger(tmp_path / "ledger"):
        pass


def test_a_refused_second_opener_leaves_the_first_one_its_folder(tmp_path: Path) -> None:
    with level_ledger(tmp_path / "ledger") as ledger:
        for _ in range(2):
            with pytest.raises(StoreInUse):
                LevelDisk(str(tmp_path / "ledger"))
        add(ledger)


@pytest.mark.parametrize(
    ("folder", "problem"),
    [
        ("missing/ledger", "missing is no folder: make it first"),
        ("file", "is a file: give a folder"),
        ("file/ledger", "file is no folder: make it first"),
        ("full", r"holds something else \(letters.txt\): give an empty folder"),
    ],
)
def test_a_folder_that_cannot_be_used_is_named_with_what_to_do(tmp_path: Path, folder: str, problem: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letters.txt").touch()
    with pytest.raises(StoreMisused, match=f"leveldb://{tmp_path}/{folder}: .*{problem}"):
        LevelDisk(str(tmp_path / folder))


def test_refusing_a_folder_changes_nothing_in_it(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").touch()
    with pytest.raises(StoreMisused):
        LevelDisk(str(tmp_path))
    assert os.listdir(tmp_path) == ["letters.txt"]


@pytest.mark.parametrize("folder", ["/proc/self", "/proc/duecourse", f"/usr/{'x' * 300}", f"/usr/{'x' * 300}/ledger"])
def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(folder: str) -> None:
    with pytest.raises(
        StoreMisused, match=rf"leveldb://{folder}: .*(cannot be written|holds something else|is no folder)"
    ):
        LevelDisk(folder)


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    for name in (b"a", LAYOUT_KEY):
        with plyvel.DB(str(tmp_path / "theirs"), create_if_missing=True) as theirs:
            theirs.put(name, b"1")
        with pytest.raises(StoreMisused, match="another program's LevelDB"):
            LevelDisk(str(tmp_path / "theirs"))
    with plyvel.DB(str(tmp_path / "theirs")) as theirs:
        assert list(theirs) == [(LAYOUT_KEY, b"1"), (b"a", b"1")]


@pytest.mark.parametrize(
    ("layout", "way_out"),
    [
        ("duecourse 4", "upgrade it once with commit 9d900a4"),
        (f"duecourse keyspace {VERSION - 1}", "upgrade it once with commit 9d900a4"),
        ("duecourse keyspace 99", "use the release that wrote it"),
    ],
)
def test_a_folder_of_another_version_is_rejected_with_the_way_out_and_stays_as_it_was(
    tmp_path: Path, layout: str, way_out: str
) -> None:
    with plyvel.DB(str(tmp_path / "other"), create_if_missing=True) as other:
        other.put(LAYOUT_KEY, layout.encode())
        other.put(b"task", b"of that version")
    with pytest.raises(OtherVersion, match=f"'{layout}', and this release reads '{LAYOUT.decode()}': {way_out}"):
        LevelDisk(str(tmp_path / "other"))
    with plyvel.DB(str(tmp_path / "other")) as other:
        assert list(other) == [(LAYOUT_KEY, layout.encode()), (b"task", b"of that version")]


def test_a_first_opening_that_was_cut_off_is_gone_on_with(tmp_path: Path) -> None:
    plyvel.DB(str(tmp_path / "ledger"), create_if_missing=True).close()
    (tmp_path / "early").mkdir()
    for name in ("LOCK", "LOG", "MANIFEST-000001", "000001.dbtmp", LOCK):
        (tmp_path / "early" / name).touch()
    for folder in ("ledger", "early"):
        with level_ledger(tmp_path / folder):
            pass
        with plyvel.DB(str(tmp_path / folder)) as opened:
            assert opened.get(LAYOUT_KEY) == LAYOUT


@pytest.mark.parametrize(
    ("version", "how"), [((3, 12), r"pip install 'duecourse\[embedded\]'"), ((3, 13), r"Python 3\.11 and 3\.12")]
)
def test_a_missing_library_is_named_with_how_to_get_it(
    version: tuple[int, int], how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plyvel", None)
    monkeypatch.setattr(sys, "version_info", version)
    with pytest.raises(StoreMisused, match=how):
        LevelDisk(str(tmp_path / "ledger"))


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    with level_ledger(tmp_path / "ledger") as ledger:
        pass
    ledger.close()
    for verb in (lambda: ledger.get("default", "a"), lambda: ledger.add([new()])):
        with pytest.raises(StoreUnavailable, match=f"leveldb://{tmp_path}/ledger was closed"):
            verb()


def test_the_settings_name_the_folder(tmp_path: Path) -> None:
    ledger = open_ledger.open_ledger(Settings(store=f"leveldb://{tmp_path}/ledger"))
    assert isinstance(ledger, EmbeddedLedger)
    add(ledger)
    ledger.close()
    with level_ledger(tmp_path / "ledger") as again:
        stored_task(again)


def test_a_folder_that_was_removed_while_it_was_open_takes_nothing_more(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    below = LevelDisk(str(folder))
    ledger = EmbeddedLedger(disk=below)
    add(ledger)
    for _ in range(2):
        shutil.rmtree(folder, ignore_errors=True)
        with pytest.raises(StoreUnavailable, match=f"leveldb://{folder}: the folder, .* was removed or replaced"):
            ledger.add([new("b")])
        assert not folder.exists(), "no empty ledger in its place"
        below._db.close()  # as after a fault
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        ledger.get("default", "a")
    ledger.close()


def test_a_folder_that_was_replaced_while_it_was_open_is_written_to_when_it_is_back(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    with level_ledger(folder) as ledger:
        folder.rename(tmp_path / "aside")
        folder.mkdir()
        (folder / LOCK).touch()
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            ledger.add([new("b")])
        shutil.rmtree(folder)
        (tmp_path / "aside").rename(folder)
        add(ledger, "c")


@pytest.mark.parametrize(("was", "to"), [(1, 8), (8, 3)])
def test_a_queue_with_another_number_of_shards_is_refused_when_it_is_opened(tmp_path: Path, was: int, to: int) -> None:
    folder = tmp_path / "ledger"
    with level_ledger(folder, sharding=Sharding({"default": was})) as ledger:
        add(ledger)
    for _ in range(2):
        problem = rf"Queue default has {was} registered shards and DUECOURSE_SHARDS says {to}: set it to {was}"
        with pytest.raises(StoreMisused, match=problem):
            open_ledger.open_ledger(Settings(store=f"leveldb://{folder}", shards={"default": to}))
    with level_ledger(folder, sharding=Sharding({"default": was, "other": to})) as ledger:
        stored_task(ledger)
