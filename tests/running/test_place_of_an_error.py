"""The place of an error: the innermost line of a user's own code, and never more than its file and number."""

import random
import runpy
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from duecourse.base.times import parse_duration
from duecourse.errors import CallFailed
from duecourse.ledger.task import DETAIL_LENGTH, Settlement, Task
from duecourse.running.run import LONGEST_PLACE, Kind, Runner, place_of
from tests.support.clock import START
from tests.support.kinds import leased


def run(kind: Kind, **changes: Any) -> Settlement:
    return Runner({"work": kind}.get, None, lambda: START, random.Random(7)).run(leased("work", {}, **changes))


def written(folder: Path, name: str, *lines: str) -> Kind:
    """A handler in a file of its own, whose last line is the one that fails."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("import json\n\n\ndef handler(task):\n" + textwrap.indent("\n".join(lines), "    ") + "\n")
    kind: Kind = runpy.run_path(str(path))["handler"]
    return kind


def test_a_tasks_error_has_the_file_and_line_that_raised_it(tmp_path: Path) -> None:
    assert run(written(tmp_path, "app.py", "task.payload['prize']")).detail == "KeyError: 'prize' at app.py:5"


def test_the_place_is_the_users_line_where_the_standard_library_raises(tmp_path: Path) -> None:
    assert run(written(tmp_path, "app.py", "", "json.loads('{')")).detail.endswith(" at app.py:6")


def test_a_library_is_not_the_place_of_an_error(tmp_path: Path) -> None:
    for folder in ("site-packages/lib.py", "dist-packages/lib.py"):
        library = written(tmp_path, folder, "raise OSError('no')")

        def handler(task: Task, called: Kind = library) -> None:
            called(task)

        assert run(handler).detail.startswith("OSError: no at ")
        assert "test_place_of_an_error.py:" in run(handler).detail


def test_an_error_inside_duecourse_alone_has_no_place() -> None:
    def kind(_task: Task) -> Any:
        return "no outcome"

    assert run(kind).detail == "TypeError: a handler returns Done, Again, Retry or Drop, not str"
    with pytest.raises(ValueError, match="duration") as raised:
        parse_duration("?")
    tail = raised.value.__traceback__
    assert tail is not None
    assert place_of(raised.value.with_traceback(tail.tb_next)) == ""


def test_a_call_that_failed_has_no_place_for_the_other_end_is_at_fault() -> None:
    def kind(_task: Task) -> Any:
        raise CallFailed("GET https://a.example answered 503")

    assert run(kind).detail.endswith("GET https://a.example answered 503")


def test_a_file_is_named_from_the_folder_it_is_imported_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = written(tmp_path, "myapp/jobs/bill.py", "raise OSError")
    assert run(kind).detail == "OSError at bill.py:5"
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert run(kind).detail == "OSError at myapp/jobs/bill.py:5"


def test_a_long_error_keeps_its_place_within_the_bound(tmp_path: Path) -> None:
    detail = run(written(tmp_path, "app.py", f"raise OSError({'ä' * 900!r})")).detail
    assert len(detail.encode()) <= DETAIL_LENGTH
    assert detail.endswith("ä at app.py:5")


def test_a_place_is_bounded_and_keeps_the_end_of_a_long_name(tmp_path: Path) -> None:
    place = run(written(tmp_path, "x" * 200 + ".py", "raise OSError")).detail.removeprefix("OSError at ")
    assert place.endswith("x.py:5")
    assert len(place) == LONGEST_PLACE


def test_a_place_has_no_character_that_ends_it_or_breaks_a_line(tmp_path: Path) -> None:
    assert run(written(tmp_path, "a b\x1b\nü.py", "raise OSError")).detail == "OSError at a_b__ü.py:5"
