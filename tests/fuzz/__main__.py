"""Start the harness in this process, with a ledger in memory in which nothing runs, and let schemathesis at it."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import urllib3

from duecourse.wire.queries import EXAMPLE
from local.options import Options, Precision
from local.stack import Stack

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 90
NOBODY = "http://127.0.0.1:9/"
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
        tempfile.TemporaryDirectory() as folder,  # the tool keeps what it found, and would begin with that
    ):
        schema = Path(folder, "openapi.json")
        schema.write_text(json.dumps(as_served_here(stack.api)))
        command = [tool, "--config-file", CONFIG, "run", schema, "--url", stack.api, *sys.argv[1:]]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=folder, env=environment, check=False, timeout=WITHIN_S).returncode


def as_served_here(api: str) -> dict[str, Any]:
    """The document of a running API, but for what is otherwise here: nobody asks for a signature, and two kinds run."""
    document: dict[str, Any] = urllib3.request("GET", f"{api}/openapi.json").json()
    del document["security"], document["components"]["securitySchemes"]
    document["components"]["schemas"]["AddTask"]["properties"]["kind"] = {"enum": ["webhook", "poll"]}
    # A query is called at once: where nobody listens.
    document["components"]["schemas"]["AskQuery"]["properties"]["url"] = {"enum": [NOBODY]}
    return dict(json.loads(json.dumps(document).replace(str(EXAMPLE["url"]), NOBODY)))


if __name__ == "__main__":
    sys.exit(main())
