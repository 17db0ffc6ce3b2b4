"""`python -m tests.audit PIP_AUDIT`: the pinned packages against known vulnerabilities, where a service knows them."""

import json
import subprocess
import sys
from typing import Any, NamedTuple

from tests.support.project import ROOT

PINS = ROOT / "requirements" / "dev.txt"
"""Its pins include those of the layers and of the bridge's image."""
OPTIONS = ("--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner", "off")
TIMEOUT = 300


class Verdict(NamedTuple):
    """Lines for the reader, and the exit code."""

    lines: list[str]
    code: int


def verdict(report: str, complaint: str) -> Verdict:
    """Judge what pip-audit printed; an index without a service makes it find nothing, which is no clean bill."""
    try:
        packages = json.loads(report)["dependencies"]
    except ValueError:
        return _skipped(complaint.strip().rpartition("\n")[2])
    missed = [one["name"] for one in packages if "skip_reason" in one]
    if len(missed) == len(packages):
        return _skipped(f"it has none of the {len(packages)} packages")
    wrong = [line for one in packages for line in _vulnerabilities(one)]
    wrong += [f"{name}: the service has no such package, so it was not looked up" for name in missed]
    looked_up = len(packages) - len(missed)
    return Verdict([*wrong, f"audit: {looked_up} packages looked up, {len(wrong)} problems"], int(bool(wrong)))


def _skipped(why: str) -> Verdict:
    return Verdict([f"audit: SKIPPED, nothing was looked up, for no vulnerability service answers: {why}"], 0)


def _vulnerabilities(package: dict[str, Any]) -> list[str]:
    place = f"{package['name']} {package.get('version')}"
    return [
        f"{place}: {one['id']}, fixed in {', '.join(one['fix_versions']) or 'no version'}"
        for one in package.get("vulns", [])
    ]


def main(tool: str) -> int:
    """1 where a vulnerability is known, or where a part of the packages could not be looked up."""
    command = [tool, "--requirement", str(PINS), *OPTIONS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    lines, code = verdict(done.stdout, done.stderr)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
