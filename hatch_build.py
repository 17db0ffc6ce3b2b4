"""The product's template, functions and events for the wheel and the sdist, without functions that a user added."""

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PRODUCT = "local/duecourse_local/project/product.py"
INTO = {"wheel": "duecourse_local/bundle/", "sdist": ""}


class Product(BuildHookInterface):
    """Adds template.yaml as the product has it, and the functions and events that it names."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files; an editable install reads the clone."""
        if version == "editable":
            return
        root, into = Path(self.root), INTO[self.target_name]
        product = runpy.run_path(str(root / PRODUCT))
        template = product["without_own"]((root / "template.yaml").read_text())
        self._written = tempfile.TemporaryDirectory()
        written = Path(self._written.name, "template.yaml")
        written.write_text(template)
        included = build_data["force_include"]
        included[str(written)] = f"{into}template.yaml"
        for name in product["functions_of"](template):
            for part in (f"functions/{name}/app.py", f"events/{name}"):
                included[str(root / part)] = into + part

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        """Delete the template that was written for the build."""
        if version != "editable":
            self._written.cleanup()
