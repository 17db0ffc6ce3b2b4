"""A project that `duecourse init` writes: its files, its bundle, and its template with the nested application."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from duecourse import __version__
from duecourse.schedules.file_text import parse_file
from duecourse.settings import parse
from duecourse_local.cli.project import MAX_STACK, admitted, write_project
from duecourse_local.cli.scaffold import MAX_NAME, NewFunction, write_function
from duecourse_local.errors import HarnessError, TemplateError
from duecourse_local.harness.intrinsics import Addresses
from duecourse_local.harness.options import PARAMETERS
from duecourse_local.harness.template import Function, Template
from duecourse_local.project import bundle
from duecourse_local.project.place import BUNDLE, Project
from tests.support.commands import in_this_process
from tests.support.project import ROOT
from tests.support.template import TEMPLATE

pytestmark = pytest.mark.slow

ADDRESSES = Addresses("http://api", "http://aws", "redis://store")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "Billing & more"
    write_project(root)
    return Project(root, root / BUNDLE)


def functions(project: Project, **parameters: str) -> dict[str, Function]:
    found = Template(project.template(), ADDRESSES, {**PARAMETERS, **parameters}).functions
    return {function.name: function for function in found}


def test_it_runs_the_functions_of_both_templates(project: Project) -> None:
    own = {function.name for function in Template(TEMPLATE, ADDRESSES, PARAMETERS).functions}
    found = functions(project)
    assert found.keys() == own | {"duecourse-report"}
    assert found["duecourse-report"].code == project.root / "functions/report"
    assert found["OnExpiredFunction"].code == project.root / BUNDLE / "functions/on_expired"
    [layer] = found["OnUndeliveredFunction"].layers
    assert (layer / "duecourse" / "py.typed").is_file()


def test_functions_find_what_the_app_shares_with_them(project: Project) -> None:
    found = functions(project)
    assert found["duecourse-report"].layers == (project.root / "layer/python",)
    assert (project.root / "layer/python/shared/__init__.py").is_file()
    assert project.root / "layer/python" not in found["OnExpiredFunction"].layers


def test_what_drains_knows_the_function_by_its_fixed_name(project: Project) -> None:
    write_function(project.root, NewFunction("send_bill", "bill"))
    found = functions(project)
    for name in ("EnqueueHttpFunction", "PollTickFunction", "OnExpiredFunction"):
        targets = parse({"DUECOURSE_TARGETS": found[name].environment["DUECOURSE_TARGETS"]}).targets
        assert {target.removeprefix("lambda:") for target in targets.values()} < found.keys()
        assert targets["bill"] == "lambda:duecourse-send_bill"
        assert targets["report"] == "lambda:duecourse-report"


def test_what_drains_may_invoke_the_function(project: Project) -> None:
    policies = Template(project.template(), ADDRESSES, PARAMETERS).resources("AWS::IAM::ManagedPolicy")
    [work] = [policy for policy in policies if policy.logical_id == "WorkPolicy"]
    [invoke] = [s for s in work.properties["PolicyDocument"]["Statement"] if s["Sid"] == "InvokeTargets"]
    assert [arn.rpartition(":function:")[2] for arn in invoke["Resource"]] == ["duecourse-report"]


def test_the_function_gets_the_store_the_results_and_the_queue_of_failures(project: Project) -> None:
    found = functions(project, Namespace="mine")
    report, api = found["duecourse-report"], found["EnqueueHttpFunction"]
    for name in ("DUECOURSE_STORE", "DUECOURSE_RESULTS_TABLE", "DUECOURSE_NAMESPACE"):
        assert report.environment[name] == api.environment[name] != ""
    assert report.environment["DUECOURSE_NAMESPACE"] == "mine"
    assert report.async_policy == found["SendReminderFunction"].async_policy


def test_parameters_of_this_machine_win_over_the_deployments(project: Project) -> None:
    template = project.root / "template.yaml"
    kept = "        Namespace: !Ref Namespace\n"
    template.write_text(
        template.read_text().replace(kept, f"{kept}        Retention: PT7H\n        MailFrom: a@b.at\n")
    )
    found = functions(project)
    assert found["SendReminderFunction"].environment["DUECOURSE_RETENTION"] == "PT7H"
    assert found["SendReminderFunction"].environment["DUECOURSE_MAIL_FROM"] == PARAMETERS["MailFrom"]


def test_two_functions_of_one_name_are_an_error(project: Project) -> None:
    template = project.root / "template.yaml"
    template.write_text(template.read_text().replace("!Sub ${AWS::StackName}-report\n", "PollTickFunction\n", 1))
    with pytest.raises(TemplateError, match="two functions PollTickFunction: rename yours"):
        functions(project)


def test_an_output_that_is_not_there_is_named(project: Project) -> None:
    template = project.root / "template.yaml"
    template.write_text(template.read_text().replace("Outputs.ResultsTableName", "Outputs.Table"))
    with pytest.raises(TemplateError, match="has no output Table"):
        functions(project)


def test_a_bundle_is_written_where_it_is_missing_and_written_anew_where_it_is_of_another_version(
    project: Project,
) -> None:
    place = project.root / BUNDLE
    project.template()
    stray, written = place / "functions" / "stray.py", (place / "template.yaml").stat().st_ino
    stray.touch()
    project.template()
    assert (place / "template.yaml").stat().st_ino == written
    (place / bundle.MARK).write_text("0.0.1 of another time")
    project.template()
    assert bundle.is_current(project.root, BUNDLE)
    assert not stray.exists()


def test_the_schedules_of_a_project_are_in_its_bundle_beside_the_tick(project: Project) -> None:
    place = project.template().parent / BUNDLE / "functions/poll_tick"
    assert parse_file((place / "schedules.yaml").read_text()) == parse_file(project.schedules.read_text())
    project.schedules.write_text("number: 2\nschedules: []\n")
    project.template()
    assert (place / "schedules.yaml").read_text() == "number: 2\nschedules: []\n"
    project.schedules.unlink()
    project.template()
    assert sorted(path.name for path in place.iterdir()) == ["app.py"]


def test_the_example_in_the_file_of_schedules_is_right(project: Project) -> None:
    text = project.schedules.read_text()
    assert parse_file(text)[:3] == (1, (), ())
    lines = [line.removeprefix("# ") for line in text.partition("several:\n#\n")[2].splitlines()]
    file = parse_file("\n".join(["number: 1", *lines]))
    assert ([one.id for one in file.schedules], file.problems) == (["daily-report"], ())


def test_in_a_clone_the_schedules_are_beside_the_tick() -> None:
    assert Project(ROOT).schedules == ROOT / "functions/poll_tick/schedules.yaml"


def test_a_bundle_that_cannot_be_written_leaves_the_former_one(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = project.root / BUNDLE
    project.template()
    (place / "template.yaml").write_text("of the former one")
    before = sorted(place.parent.rglob("*"))
    monkeypatch.setattr(bundle, "CONSTRAINTS", "absent/file")
    with pytest.raises(FileNotFoundError):
        bundle.write(project.root, BUNDLE)
    assert sorted(place.parent.rglob("*")) == before
    assert (place / "template.yaml").read_text() == "of the former one"


def test_a_written_bundle_is_the_repositorys_but_for_where_sam_builds_its_layers(project: Project) -> None:
    place = project.template().parent / BUNDLE
    for part in ("layers/core/duecourse/client/client.py", "layers/layer.mk", "functions/on_expired/app.py"):
        assert (place / part).read_bytes() == (ROOT / part).read_bytes()
    [folder] = set(re.findall(r"WorkingDirectory: !Sub (.*)\$\{", (place / "template.yaml").read_text()))
    assert (project.root / folder / "arm64" / "platform.txt").is_file()
    assert not [path for path in place.rglob("*") if path.name == "__pycache__"]


def test_init_overwrites_nothing_and_names_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "tests").mkdir()
    with pytest.raises(HarnessError, match=r"already has README\.md, tests: choose an empty folder"):
        write_project(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "tests"]


def test_init_that_cannot_write_one_file_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / ".github").touch()
    with pytest.raises(OSError, match="github"):
        write_project(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".github"]


ODD = ("[project]", "[/red]", "a: b", "a\nb", "@NAME@", "@STACK@", 'a"b', "it's", "{x}", "- a", "12", "b\\s", "ä")


@pytest.mark.parametrize("name", ODD)
def test_init_takes_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    done = in_this_process("init", str(tmp_path / name))
    assert (done.exit_code, done.stderr) == (0, "")
    assert shlex.quote(str(tmp_path / name)) in done.stdout
    root = tmp_path / name
    assert functions(Project(root, root / BUNDLE)).keys() > {"duecourse-report"}
    stack = tomllib.loads((root / "pyproject.toml").read_text())["project"]["name"]
    assert f'stack_name = "{stack}"' in (root / "samconfig.toml").read_text()


def test_init_takes_a_folder_with_a_repository_and_a_venv(tmp_path: Path) -> None:
    for name in (".git", ".venv"):
        (tmp_path / name).mkdir()
    assert tmp_path / "template.yaml" in write_project(tmp_path)


def test_every_word_of_the_skeleton_is_filled(project: Project) -> None:
    for path in project.root.rglob("*"):
        if path.is_file():
            assert not re.search(r"@[A-Z]+@", path.read_text()), path
            assert not path.name.endswith(".in")
    written = tomllib.loads((project.root / "pyproject.toml").read_text())["project"]
    assert written["name"] == "billing-more"
    assert written["dependencies"][0] == f"duecourse[local]{admitted(__version__)}"
    assert 'stack_name = "billing-more"' in (project.root / "samconfig.toml").read_text()


@pytest.mark.parametrize(
    ("version", "range"), [("0.1.0", ">=0.1.0,<0.2"), ("0.2.0.dev1", ">=0.2.0.dev1,<0.3"), ("3.1.4", ">=3.1.4,<4")]
)
def test_a_project_takes_versions_that_agree_with_the_one_that_wrote_it(version: str, range: str) -> None:
    assert admitted(version) == range


def test_the_name_of_a_function_on_aws_is_not_too_long() -> None:
    assert MAX_STACK + len("-") + MAX_NAME == 64


def test_a_function_of_the_bundle_is_no_name_for_another(project: Project) -> None:
    with pytest.raises(HarnessError, match="on_expired is a function of duecourse"):
        write_function(project.root, NewFunction("on_expired", "mine"))


def test_a_kind_or_a_test_that_is_there_is_not_taken_again(project: Project) -> None:
    with pytest.raises(HarnessError, match="KIND: report already has a target"):
        write_function(project.root, NewFunction("summary", "report"))
    (project.root / "tests" / "test_summary.py").touch()
    with pytest.raises(HarnessError, match=r"tests/test_summary\.py already exists"):
        write_function(project.root, NewFunction("summary", "summary"))


def test_a_template_without_the_places_is_left_alone(project: Project) -> None:
    template = project.root / "template.yaml"
    template.write_text(template.read_text().replace("Targets: !Join", "Targets: !Join  # ours"))
    before = template.read_text()
    with pytest.raises(HarnessError, match="no place where the function fits"):
        write_function(project.root, NewFunction("summary", "summary"))
    assert template.read_text() == before
    assert not (project.root / "functions" / "summary").exists()
