"""What cfn-guard finds, less what the template accepts: each with its reason, and none that is no longer needed."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ONCE_GIVEN = {
    "cloudwatch_log_group_encrypted_check": "KmsKeyArn",
    "dynamodb_table_encrypted_kms_check": "KmsKeyArn",
    "cloudwatch_log_group_retention_period_check": "LogRetention",
    "lambda_inside_vpc_check": "SubnetIds",
}
"""Rules that hold once a parameter is given: each account decides, and what AWS does by default is enough for most."""
ACCEPTED = "Accepted"
"""Part of a resource's Metadata: the rules that it does not follow, and why."""


class Findings:
    """Reports of cfn-guard on variants of one template."""

    def __init__(
        self,
        resources: Mapping[str, Any],
        rules: str,
        given: list[dict[str, str]],
        reports: list[dict[str, Any]],
    ) -> None:
        self._resources = resources
        self._accepted = {
            (rule, name)
            for name, resource in resources.items()
            for rule in resource.get("Metadata", {}).get(ACCEPTED, {})
        }
        self._ours = set(re.findall(r"^rule (\w+)", rules, re.MULTILINE))
        self._given = given
        self._reports = {int(Path(report["name"]).stem): report for report in reports}

    def wrong(self) -> list[str]:
        """Lines for whoever mends it."""
        found = dict(self._found())
        lines = [
            f"{name}: {rule}: {said}\n  with {self._given[number]}"
            for (rule, name), where in found.items()
            for number, said in list(where.items())[:1]
            if (rule, name) not in self._accepted
        ]
        unneeded = self._accepted - found.keys()
        lines += [f"{name}: {rule} is accepted in its Metadata, and holds: delete that" for rule, name in unneeded]
        lines += [
            f"{rule}: no variant of the template has what it is about"
            for rule in self._asleep() - {rule for rule, _ in found}
        ]
        return lines

    def _found(self) -> Iterator[tuple[tuple[str, str], dict[int, str]]]:
        found: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
        for number, report in self._reports.items():
            for finding in report["not_compliant"]:
                rule = finding["Rule"]["name"]
                if rule in ONCE_GIVEN and ONCE_GIVEN[rule] not in self._given[number]:
                    continue
                for name in _names(finding):
                    found[rule, self._written(name)][number] = _said(finding)
        yield from found.items()

    def _asleep(self) -> set[str]:
        """Rules of ours that looked at nothing: one that cannot fail keeps nothing."""
        looked = {rule for report in self._reports.values() for rule in report["compliant"]}
        return self._ours - looked

    def _written(self, made: str) -> str:
        """The resource of ours that SAM made this one of: a function's role has the function's name in front."""
        return (
            made if made in self._resources else max((n for n in self._resources if made.startswith(n)), default=made)
        )


def _names(finding: Any) -> set[str]:
    """Resources that a finding is about."""
    return set(re.findall(r"/Resources/(\w+)", json.dumps(finding))) or {"the template"}


def _said(finding: Any) -> str:
    """The rule's own words."""
    said = re.findall(r'"custom_message": "([^"]+)"', json.dumps(finding))
    return " ".join(said[0].replace("\\n", " ").split()) if said else "no reason given"
