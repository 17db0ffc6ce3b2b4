"""`python -m tests.template_rules VENV`: print what is wrong with the template, by the tools in a venv."""

import json
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.project import ROOT
from tests.support.template import TEMPLATE, template
from tests.support.variants import created, variants
from tests.template_rules.findings import Findings

RULES = ROOT / "template.guard"
SYSTEMS = {"Linux": "ubuntu", "Darwin": "macos"}
MACHINES = {"arm64": "aarch64"}
TRANSLATE = Path(__file__).with_name("translate.py")


def main(venv: Path) -> int:
    """1 where cfn-lint or cfn-guard finds something that is not accepted, or what is accepted is not there."""
    linted = subprocess.run([venv / "bin/cfn-lint", TEMPLATE], check=False).returncode
    wrong = guarded(venv).wrong()
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if linted or wrong else 0


def guarded(venv: Path) -> Findings:
    """What cfn-guard finds in each variant of the translated template."""
    command = [venv / "bin/python", TRANSLATE]
    done = subprocess.run(command, input=json.dumps(template()), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"SAM rejects the template:\n{done.stderr}")
    translated, given = json.loads(done.stdout), variants()
    with tempfile.TemporaryDirectory() as folder:
        for number, parameters in enumerate(given):
            made = {"AWSTemplateFormatVersion": "2010-09-09", "Resources": created(translated, parameters)}
            Path(folder, f"{number}.json").write_text(json.dumps(made))
        types = {resource["Type"] for resource in translated["Resources"].values()}
        reports = _guard(venv / "guard", [*_of_aws(venv / "guard", types), RULES], folder)
        return Findings(template()["Resources"], RULES.read_text(), given, reports)


def _of_aws(package: Path, types: set[str]) -> Iterator[Path]:
    """AWS's rules that speak of a type of the template."""
    for path in sorted((package / "rules/control-tower/cfn-guard").rglob("*.guard")):
        if types & set(re.findall(r"AWS::\w+::\w+", path.read_text())):
            yield path


def _guard(package: Path, rules: list[Path], data: str) -> list[dict[str, Any]]:
    """cfn-guard's report on each file of a folder."""
    machine = platform.machine()
    tool = package / "bin" / SYSTEMS[platform.system()] / MACHINES.get(machine, machine) / "cfn-guard"
    command = [tool, "validate", "--data", data, "--rules", *rules]
    command += ["--structured", "--output-format", "json", "--show-summary", "none"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        reports: list[dict[str, Any]] = json.loads(done.stdout)
    except ValueError:
        sys.exit(f"cfn-guard failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return reports


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
