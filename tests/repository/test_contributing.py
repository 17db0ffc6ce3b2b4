"""The page for contributors names files that are there."""

import re

from tests.support.project import ROOT

PLACES = (ROOT, ROOT / "layers/core/duecourse", ROOT / "layers/core/duecourse/ledger", ROOT / "docs")
NAMED = re.compile(r"`([\w.-]+(?:/[\w.-]+)*(?:\.(?:lua|md|py|toml|txt|yaml)|/))`")


def test_every_file_that_the_page_for_contributors_names_is_there() -> None:
    named = set(NAMED.findall((ROOT / "CONTRIBUTING.md").read_text()))
    assert {"running/run.py", "ledger/operations/ledger.py", "template.yaml", "errors.py"} <= named
    assert {name for name in named if not any((place / name).exists() for place in PLACES)} == set()
