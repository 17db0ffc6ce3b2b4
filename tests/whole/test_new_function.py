"""`duecourse new`, then `up`, then a task of the new kind: done."""

import json
import subprocess
from pathlib import Path

import pytest
import urllib3

from tests.support.api import Api
from tests.support.commands import run, up
from tests.support.matrix import LENGTHY
from tests.support.project import ROOT, copy_project

pytestmark = LENGTHY

SAM = ROOT / ".venv-sam/bin/sam"


def test_a_new_function_works_its_first_task(http: urllib3.PoolManager, tmp_path: Path) -> None:
    copy_project(tmp_path)
    made = run("new", "report", "--kind", "weekly.report", project=tmp_path)
    assert made.returncode == 0, made.stderr
    assert {"wrote functions/report/app.py", "wrote events/report/one_task.json", "wrote template.yaml"} <= set(
        made.stdout.splitlines()
    )
    with up(tmp_path / "state", project=tmp_path) as stack:
        api = Api(http, stack.line["api"])
        body = json.loads(made.stdout.partition("-d '")[2].rstrip().removesuffix("'"))
        api.post("/tasks", {"id": "first", **body})
        assert api.done("first")["result"] == {"seen": {"hello": "world"}}


def test_a_second_function_of_the_name_is_refused_in_one_line(tmp_path: Path) -> None:
    copy_project(tmp_path)
    refused = run("new", "send_reminder", project=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("NAME: functions/send_reminder already exists")


@pytest.mark.skipif(not SAM.exists(), reason="make sam has not been run here: no sam to validate with")
def test_sam_takes_the_template_with_a_new_function_in_it(tmp_path: Path) -> None:
    copy_project(tmp_path)
    assert run("new", "report", project=tmp_path).returncode == 0
    words = [SAM, "validate", "--lint", "--template", tmp_path / "template.yaml"]
    found = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode == 0, found.stdout + found.stderr
