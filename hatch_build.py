"""Adds to a build the product's template, functions and events, without a user's own; to the wheel, linked scripts."""

import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PRODUCT = "local/duecourse_local/project/template_marks.py"
INTO = {"wheel": "duecourse_local/bundle/", "sdist": ""}
LINKER = "layers/core/lua_linker.py"
LINKED = "duecourse/ledger/linked"


class Product(BuildHookInterface):
    """Adds the files that a clone has otherwise."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files; an editable install reads the clone."""
        if version == "editable":
            return
        self._written = tempfile.TemporaryDirectory()
        written, included = Path(self._written.name), build_data["force_include"]
        self._add_product(written / "template.yaml", included)
        if self.target_name == "wheel":
            self._add_scripts(written / "linked", included)

    def _add_product(self, written: Path, included: dict[str, str]) -> None:
        """Add template.yaml as the product has it, and the functions and events that it names."""
        root, into = Path(self.root), INTO[self.target_name]
        product = runpy.run_path(str(root / PRODUCT))
        template = product["without_own"]((root / "template.yaml").read_text())
        written.write_text(template)
        included[str(written)] = f"{into}template.yaml"
        for name in product["functions_of"](template):
            for part in (f"functions/{name}/app.py", f"events/{name}"):
                included[str(root / part)] = into + part

    def _add_scripts(self, written: Path, included: dict[str, str]) -> None:
        """Add the scripts of the ledger, linked: their sources stay in the sdist."""
        subprocess.run([sys.executable, "-B", Path(self.root, LINKER), written], check=True)  # noqa: S603 - our own file
        included[str(written)] = LINKED

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        """Delete what was written for the build."""
        if version != "editable":
            self._written.cleanup()
