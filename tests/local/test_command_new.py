"""What `duecourse new` writes, and what it refuses."""

import difflib
import json
import shutil
from pathlib import Path

import pytest

from duecourse.running.task_event import decode_tasks
from duecourse.settings import parse
from duecourse_local.cli.scaffold import MAX_NAME, NewFunction, write_function
from duecourse_local.errors import HarnessError
from duecourse_local.harness.intrinsics import Addresses
from duecourse_local.harness.options import PARAMETERS
from duecourse_local.harness.template import Template
from duecourse_local.project.template_marks import functions_of, without_own
from tests.support.project import copy_project

pytestmark = pytest.mark.slow

NOWHERE = Addresses("http://api", "http://aws", "redis://store")


def files(root: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def test_a_new_function_is_described_like_the_others(tmp_path: Path) -> None:
    template = copy_project(tmp_path)
    write_function(tmp_path, NewFunction("send_bill", "bill"))
    functions = {f.name: f for f in Template(template, NOWHERE, PARAMETERS).functions}
    made = functions["SendBillFunction"]
    assert made.code == tmp_path / "functions/send_bill"
    assert (made.handler, made.layers) == ("app.handler", functions["OnUndeliveredFunction"].layers)
    assert made.async_policy == functions["SendReminderFunction"].async_policy
    assert made.environment["DUECOURSE_TARGETS"] == ""
    for name in ("EnqueueHttpFunction", "PollTickFunction", "OnExpiredFunction"):
        targets = parse({"DUECOURSE_TARGETS": functions[name].environment["DUECOURSE_TARGETS"]}).targets
        assert targets.items() >= {"reminder": "lambda:SendReminderFunction", "bill": "lambda:SendBillFunction"}.items()


def test_a_users_targets_join_the_new_ones(tmp_path: Path) -> None:
    template = copy_project(tmp_path)
    write_function(tmp_path, NewFunction("made_here", "made.here"))
    given = Template(template, NOWHERE, {**PARAMETERS, "Targets": '"a": "lambda:A"'}).functions
    targets = next(f.environment["DUECOURSE_TARGETS"] for f in given if f.name == "OnExpiredFunction")
    assert parse({"DUECOURSE_TARGETS": targets}).targets.keys() >= {"made.here", "reminder", "a"}


def test_the_template_keeps_its_comments_and_order_and_two_can_be_added(tmp_path: Path) -> None:
    template = copy_project(tmp_path)
    before = template.read_text().splitlines()
    write_function(tmp_path, NewFunction("made_here", "made.here"))
    write_function(tmp_path, NewFunction("send_bill", "bill"))
    changed = [line for line in difflib.ndiff(before, template.read_text().splitlines()) if line.startswith("- ")]
    assert changed == []
    names = [f.name for f in Template(template, NOWHERE, PARAMETERS).functions]
    assert {"MadeHereFunction", "SendBillFunction"} < set(names)


def test_the_products_template_is_found_again_among_new_functions(tmp_path: Path) -> None:
    template = copy_project(tmp_path)
    before = template.read_text()
    write_function(tmp_path, NewFunction("made_here", "made.here"))
    write_function(tmp_path, NewFunction("send_bill", "bill"))
    assert without_own(template.read_text()) == before
    assert set(functions_of(template.read_text())) == {*functions_of(before), "made_here", "send_bill"}


@pytest.mark.parametrize("kind", ["a:", "@a", "-", "null", "a:b", "#1"[1:], ".", "0x10"])
def test_every_kind_that_a_task_may_have_is_one_for_a_new_function(tmp_path: Path, kind: str) -> None:
    template = copy_project(tmp_path)
    write_function(tmp_path, NewFunction("made_here", kind))
    functions = {f.name: f for f in Template(template, NOWHERE, PARAMETERS).functions}
    targets = parse({"DUECOURSE_TARGETS": functions["OnExpiredFunction"].environment["DUECOURSE_TARGETS"]}).targets
    assert targets[kind] == "lambda:MadeHereFunction"


def test_a_folder_that_git_left_with_compiled_code_alone_is_written_anew(tmp_path: Path) -> None:
    copy_project(tmp_path)
    (tmp_path / "functions/made_here/__pycache__").mkdir(parents=True)
    write_function(tmp_path, NewFunction("made_here", "made.here"))
    assert (tmp_path / "functions/made_here/app.py").is_file()


def test_those_who_drain_may_invoke_the_new_function(tmp_path: Path) -> None:
    template = copy_project(tmp_path)
    write_function(tmp_path, NewFunction("made_here", "made.here"))
    [policy] = [
        r
        for r in Template(template, NOWHERE, PARAMETERS).resources("AWS::IAM::ManagedPolicy")
        if r.logical_id == "WorkPolicy"
    ]
    statements = {s["Sid"]: s for s in policy.properties["PolicyDocument"]["Statement"]}
    assert statements["InvokeMadeHereFunction"]["Action"] == "lambda:InvokeFunction"
    assert statements["InvokeMadeHereFunction"]["Resource"].endswith(":function:MadeHereFunction")


def test_no_line_of_the_new_function_is_too_long_for_the_projects_own_lint(tmp_path: Path) -> None:
    copy_project(tmp_path)
    write_function(tmp_path, NewFunction("x" * MAX_NAME, "k" * 64))
    lines = (tmp_path / "functions" / ("x" * MAX_NAME) / "app.py").read_text().splitlines()
    assert max(map(len, lines)) <= 120


def test_the_saved_event_is_the_engines(tmp_path: Path) -> None:
    copy_project(tmp_path)
    write_function(tmp_path, NewFunction("send_bill", "bill"))
    [task] = decode_tasks(json.loads((tmp_path / "events/send_bill/one_task.json").read_text()))
    assert (task.kind, task.payload) == ("bill", {"hello": "world"})


@pytest.mark.parametrize(
    ("name", "kind", "complaint"),
    [
        ("Report", "a", "NAME: 'Report' must be up to"),
        ("../up", "a", "must be up to"),
        ("7up", "a", "must be up to"),
        ("a__b", "a", "must be up to"),
        ("class", "a", "must be up to"),
        ("x" * 41, "a", "must be up to"),
        ("", "a", "must be up to"),
        ("send_reminder", "a", "NAME: functions/send_reminder already exists"),
        ("made_here", "no spaces", "KIND: 'no spaces' must be 1 to 64 characters"),
        ("made_here", 'a"b', "must be 1 to 64 characters"),
        ("made_here", "poll", "KIND: poll already has a target"),
        ("made_here", "reminder", "KIND: reminder already has a target"),
        ("made_here", "task.dead", "KIND: task.… is reserved for completion notifications: rename task.dead"),
    ],
)
def test_what_is_taken_or_not_fit_is_refused_and_nothing_is_written(
    tmp_path: Path, name: str, kind: str, complaint: str
) -> None:
    copy_project(tmp_path)
    before = files(tmp_path)
    with pytest.raises(HarnessError, match=complaint):
        write_function(tmp_path, NewFunction(name, kind))
    assert files(tmp_path) == before


def test_a_kind_or_a_resource_that_is_there_is_refused(tmp_path: Path) -> None:
    copy_project(tmp_path)
    write_function(tmp_path, NewFunction("made_here", "made.here"))
    with pytest.raises(HarnessError, match="already has a target"):
        write_function(tmp_path, NewFunction("second", "made.here"))
    (tmp_path / "functions/made_here/app.py").unlink()
    for folder in ("functions", "events"):
        for path in (tmp_path / folder / "made_here").glob("*"):
            path.unlink()
        (tmp_path / folder / "made_here").rmdir()
    with pytest.raises(HarnessError, match="already has a MadeHereFunction"):
        write_function(tmp_path, NewFunction("made_here", "other"))


def test_a_function_that_cannot_be_written_whole_is_not_written_at_all(tmp_path: Path) -> None:
    copy_project(tmp_path)
    before = files(tmp_path)
    shutil.rmtree(tmp_path / "events")
    (tmp_path / "events").touch()
    with pytest.raises(OSError, match="events"):
        write_function(tmp_path, NewFunction("made_here", "made.here"))
    kept = {path: text for path, text in before.items() if tmp_path / "events" not in path.parents}
    assert files(tmp_path) == kept | {tmp_path / "events": ""}
    assert not (tmp_path / "functions/made_here").exists()


def test_a_template_without_the_places_to_write_at_is_left_alone(tmp_path: Path) -> None:
    template = copy_project(tmp_path)
    template.write_text(template.read_text().replace("WorkPolicy", "LaborPolicy"))
    before = files(tmp_path)
    with pytest.raises(HarnessError, match="write it by hand"):
        write_function(tmp_path, NewFunction("made_here", "made.here"))
    assert files(tmp_path) == before
