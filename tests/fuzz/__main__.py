"""Start the harness in this process, with a ledger in memory in which nothing runs, and let schemathesis at it."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import urllib3

from local.options import Options, Precision
from local.stack import Stack

CONFIG = Path(__file__).with_name("schemathesis.toml")
# No schedule and no bridge: what is made up here is added, moved and cancelled, but no address in it is called.
OPTIONS = Options(
    store="memory://",
    tick=0,
    precision=Precision.TICK,
    parameters={},
)


def main() -> int:
    """The tool's own exit code."""
    tool = Path(sys.executable).with_name("schemathesis")
    with (
        Stack(OPTIONS, notice=lambda text: print(text, file=sys.stderr)) as stack,
        tempfile.NamedTemporaryFile("w", suffix=".json") as file,
    ):
        json.dump(as_served_here(stack.api), file)
        file.flush()
        command = [tool, "--config-file", CONFIG, "run", file.name, "--url", stack.api, *sys.argv[1:]]
        return subprocess.run(command, check=False).returncode


def as_served_here(api: str) -> dict[str, Any]:
    """The document of a running API, but for what the harness leaves to API Gateway: it asks for no signature."""
    document: dict[str, Any] = urllib3.request("GET", f"{api}/openapi.json").json()
    del document["security"], document["components"]["securitySchemes"]
    return document


if __name__ == "__main__":
    sys.exit(main())
