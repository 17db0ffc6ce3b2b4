"""The state folder: tasks, logs and the store's password, which no other user of the machine may read."""

import json
import stat
from pathlib import Path

import pytest

from duecourse_local.errors import HarnessError
from duecourse_local.harness.state import StateFolder, running

SECRET = {"store": "redis://:a-password@127.0.0.1:6379/0"}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[None, 0o755, 0o777, 0o750, 0o701], ids=lambda mode: f"{mode:o}" if mode else "new")
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "state"
    if request.param is not None:
        path.mkdir()
        path.chmod(request.param)
    return path


def test_the_folder_is_its_owners_alone_however_it_was_made(folder: Path) -> None:
    StateFolder(folder).close()
    assert mode(folder) == 0o700


def test_the_stores_password_is_in_a_file_of_its_owners_alone(folder: Path) -> None:
    state = StateFolder(folder)
    for name in ("up.json", "up.json.new"):
        (folder / name).write_text("left by a stack that was killed")
        (folder / name).chmod(0o644)
    state.announce(SECRET)
    assert mode(folder / "up.json") == 0o600
    assert json.loads((folder / "up.json").read_text()) == SECRET
    assert running(folder) == SECRET
    state.close()
    assert running(folder) is None


def test_a_folder_that_all_users_share_is_rejected_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    path.mkdir()
    path.chmod(0o1777)
    with pytest.raises(HarnessError, match="is shared with others, who could read the tasks: give another --state"):
        StateFolder(path)
    assert (mode(path), list(path.iterdir())) == (0o777 | stat.S_ISVTX, [])


def test_addresses_that_another_user_left_in_a_shared_folder_are_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    path.mkdir()
    path.chmod(0o1777)
    (path / "up.json").write_text(json.dumps({"lambda": "http://127.0.0.1:1"}))
    with pytest.raises(HarnessError, match="is shared"):
        running(path)
