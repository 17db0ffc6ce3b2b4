"""The page on tests: each of its files stands in a folder and passes there, as a reader's would."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.project import ROOT

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs/how-to/test-your-functions.md"
FILE = re.compile(r"```python\n# (?P<name>\S+)\n(?P<text>.*?)```", re.DOTALL)


def test_the_tests_on_the_page_pass(tmp_path: Path) -> None:
    found = {match["name"]: match["text"] for match in FILE.finditer(PAGE.read_text())}
    assert sorted(found) == ["report.py", "test_report.py", "test_schedule.py", "test_time.py"]
    for name, text in found.items():
        (tmp_path / name).write_text(text)
    options = ("-q", "-W", "error", "--strict-markers", "-p", "no:schemathesis", "-p", "duecourse.testing.plugin")
    words = [sys.executable, "-m", "pytest", *options]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout
