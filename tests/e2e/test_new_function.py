"""`python -m local new`, then `up`, then a task of the new kind: done."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import urllib3

from tests.support.project import ROOT, copy_project
from tests.support.wait import until

SAM = ROOT / ".venv-sam/bin/sam"
UP = ["up", "--port", "0", "--lambda-port", "0", "--aws-port", "0", "--state", "state", "--json"]


def local(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "local", *words], cwd=project, capture_output=True, text=True, check=False, timeout=60
    )


def test_a_new_function_works_its_first_task(tmp_path: Path) -> None:
    copy_project(tmp_path)
    made = local(tmp_path, "new", "report", "--kind", "weekly.report")
    assert made.returncode == 0, made.stderr
    assert {"wrote functions/report/app.py", "wrote events/report/one_task.json", "wrote template.yaml"} <= set(
        made.stdout.splitlines()
    )
    command = [sys.executable, "-m", "local", *UP]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout
        try:
            api = json.loads(process.stdout.readline())["api"]
            body = json.loads(made.stdout.partition("-d '")[2].rstrip().removesuffix("'"))
            with urllib3.PoolManager() as http:
                assert http.request("POST", f"{api}/tasks", json={"id": "first", **body}).status == 201

                def done() -> object:
                    task = http.request("GET", f"{api}/tasks/first").json()["task"]
                    return task["result"] if task["state"] == "done" else None

                assert until(done, seconds=20, every=0.05) == {"seen": {"hello": "world"}}
        finally:
            process.terminate()


def test_a_second_function_of_the_name_is_refused_in_one_line(tmp_path: Path) -> None:
    copy_project(tmp_path)
    refused = local(tmp_path, "new", "send_reminder")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("NAME: functions/send_reminder is there already")


@pytest.mark.skipif(not SAM.exists(), reason="make sam has not been run here: no sam to validate with")
def test_sam_takes_the_template_with_a_new_function_in_it(tmp_path: Path) -> None:
    copy_project(tmp_path)
    assert local(tmp_path, "new", "report").returncode == 0
    words = [SAM, "validate", "--lint", "--template", tmp_path / "template.yaml"]
    found = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode == 0, found.stdout + found.stderr
