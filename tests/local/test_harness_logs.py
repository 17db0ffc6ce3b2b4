"""The logs of the local stack: of a bounded size, whoever writes them."""

import asyncio
import os
from contextlib import closing
from pathlib import Path

import pytest

from duecourse_local.harness.logs import Log, Logs


def test_a_log_that_is_too_large_is_begun_anew_and_the_one_before_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duecourse_local.harness.logs.MOST_BYTES", 1_000)
    with closing(Log(tmp_path, "it")) as log:
        for n in range(50):
            log.write(b"%099d\n" % n)
    now, before = (tmp_path / "it.log").read_bytes(), (tmp_path / "it.log.1").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["it.log", "it.log.1"]
    assert max(len(now), len(before)) <= 1_100
    lines = [int(line) for line in (before + now).split()]
    assert lines == list(range(50 - len(lines), 50)), "the last ones, in order"


def test_a_log_that_a_child_writes_by_itself_is_cut_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duecourse_local.harness.logs.MOST_BYTES", 1_000)
    monkeypatch.setattr("duecourse_local.harness.logs.LOOK_S", 0.01)
    logs = Logs(tmp_path)
    log = logs.of("child")

    async def while_kept() -> None:
        keeping = asyncio.create_task(logs.keep_bounded())
        os.write(log.descriptor, b"x" * 2_000)
        while not (tmp_path / "child.log.1").exists() or os.path.getsize(tmp_path / "child.log"):
            await asyncio.sleep(0.01)
        os.write(log.descriptor, b"afterwards\n")
        keeping.cancel()

    asyncio.run(asyncio.wait_for(while_kept(), 60))
    logs.close()
    assert (tmp_path / "child.log").read_bytes() == b"afterwards\n"


def test_a_log_that_was_too_large_before_is_cut_at_the_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duecourse_local.harness.logs.MOST_BYTES", 1_000)
    (tmp_path / "it.log").write_bytes(b"x" * 5_000)
    with closing(Log(tmp_path, "it")) as log:
        log.write(b"first\n")
    assert (tmp_path / "it.log").read_bytes() == b""
    assert (tmp_path / "it.log.1").read_bytes().endswith(b"xfirst\n")
