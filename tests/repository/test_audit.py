"""`make audit` fails over a known vulnerability, and never takes silence for a clean bill."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tests import audit

CLEAN = {"name": "redis", "version": "8.1.0", "vulns": []}
KNOWN = {
    "name": "jinja2",
    "version": "3.1.5",
    "vulns": [{"id": "PYSEC-2025-1", "fix_versions": ["3.1.6"], "aliases": [], "description": "a way out"}],
}
MISSED = {"name": "pika", "skip_reason": "Dependency not found on PyPI and could not be audited: pika (1.4.4)"}


def report(*packages: dict[str, Any]) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


def test_packages_without_known_vulnerabilities_pass() -> None:
    assert audit.verdict(report(CLEAN), "") == (["audit: 1 packages looked up, 0 problems"], 0)


def test_a_known_vulnerability_is_named_with_its_remedy_and_fails() -> None:
    lines, code = audit.verdict(report(CLEAN, KNOWN), "Found 1 known vulnerability")
    assert code == 1
    assert lines[0] == "jinja2 3.1.5: PYSEC-2025-1, fixed in 3.1.6"


def test_a_package_that_alone_was_not_looked_up_fails() -> None:
    lines, code = audit.verdict(report(CLEAN, MISSED), "")
    assert code == 1
    assert lines[0].startswith("pika: ")


@pytest.mark.parametrize("printed", [report(MISSED, MISSED), ""])
def test_without_a_service_the_audit_is_skipped_aloud(printed: str) -> None:
    [line], code = audit.verdict(printed, "Traceback\nConnectionError: no such host\n")
    assert code == 0
    assert line.startswith("audit: SKIPPED, nothing was looked up")


def test_the_pins_with_their_hashes_are_what_the_tool_gets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool, given = tmp_path / "pip-audit", tmp_path / "given"
    tool.write_text(f"#!/bin/sh\necho \"$@\" > {given}\necho '{report(KNOWN)}'\nexit 1\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    assert audit.main(str(tool)) == 1
    assert given.read_text().startswith(f"--requirement {audit.PINS} --require-hashes")
    assert "PYSEC-2025-1" in capsys.readouterr().out
