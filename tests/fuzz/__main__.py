"""Start the harness in this process, with a ledger in memory in which nothing runs, and let schemathesis at it."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import urllib3

from duecourse.api.fields import INSTANT_SCHEMA
from duecourse.base.times import DURATION_PATTERN, RATE_PATTERN
from duecourse.guard.http_types import CredentialName
from duecourse.queries.http import EXAMPLE
from duecourse.settings import Settings
from duecourse_local.harness.aws.task_credentials import Keyring
from duecourse_local.harness.options import Options, Precision
from duecourse_local.harness.stack import Stack
from tests.fuzz import scene

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 600
KNOWN = CredentialName("-", "billing")
"""The one credential that queries may name: another ends them at once."""
CONFIG = Path(__file__).with_name("schemathesis.toml")
TEXTS = {DURATION_PATTERN: ["PT5M", "1h30m", "500ms", "90"], RATE_PATTERN: ["10/s", "600/m", "10/PT1S"]}
"""Texts in place of each pattern that `tests/base/test_duration_and_rate_texts.py` compares with its reader."""
# No schedule and no bridge: what is made up here is added, moved and cancelled, but no address in it is called, save a
# query's: that is one of two here, see `as_served_here`. Every address may be named: no pattern says which are public.
ALLOWED = {"EgressAllow": "0.0.0.0/0, ::/0", "PollInterval": "PT0.1S", "MessagesPerReminder": "1000"}
"""As much as an operator can allow: what a schema says is taken."""
OPTIONS = Options(store="memory://", tick=0, precision=Precision.TICK, parameters=ALLOWED)


def main() -> int:
    """The tool's own exit code."""
    tool = Path(sys.executable).with_name("schemathesis")
    with (
        scene.answering() as ready,
        Stack(OPTIONS, notice=lambda text: print(text, file=sys.stderr)) as stack,
        tempfile.TemporaryDirectory() as folder,  # the tool keeps what it found, and would begin with that
    ):
        token = {"type": "bearer", "token": "a-token-of-a-test", "hosts": ["127.0.0.1"]}
        Keyring(stack.aws, Settings().credential_prefix).put(KNOWN, token)
        schema, standing = Path(folder, "openapi.json"), Path(folder, "scene.json")
        schema.write_text(json.dumps(as_served_here(stack.api, ready)))
        standing.write_text(json.dumps(scene.built(ready)))
        command = [str(tool), "--config-file", str(CONFIG), "run", str(schema), "--url", stack.api, *sys.argv[1:]]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), scene.SCENE: str(standing)}
        return subprocess.run(command, cwd=folder, env=environment, check=False, timeout=WITHIN_S).returncode


def as_served_here(api: str, ready: str) -> dict[str, Any]:
    """The document of a running API, but for what is otherwise here: nobody asks for a signature, and two kinds run."""
    document: dict[str, Any] = urllib3.request("GET", f"{api}/openapi.json").json()
    del document["security"], document["components"]["securitySchemes"]
    schemas = document["components"]["schemas"]
    # A query is called at once: where nobody listens, or one who has the answer.
    given = {"url": [scene.NOBODY, ready], "failed_when": ["failed"], "auth": [KNOWN.name, None]}
    schemas["AskQuery"]["properties"] |= {name: {"enum": values} for name, values in given.items()}
    # No kind is handed to a target.
    schemas["NotifyDone"] = {"type": "object", "properties": {"url": {"const": scene.NOBODY}}, "required": ["url"]}
    schemas["NotifyDone"]["additionalProperties"] = False
    schemas["AddTask"]["oneOf"] = [
        {"properties": {"kind": {"const": one["if"]["properties"]["kind"]["const"]}, **one["then"]["properties"]}}
        for one in schemas["AddTask"].pop("allOf")
    ]
    schemas |= {name: _apart(_in_seconds(schema)) for name, schema in schemas.items()}
    document = _few_texts(document)
    text = json.dumps(document).replace(str(EXAMPLE["url"]), scene.NOBODY)
    # A reminder's start is ahead.
    return dict(json.loads(text.replace(INSTANT_SCHEMA["examples"][0], scene.MEETING["starts_at"])))


def _in_seconds(schema: Any) -> Any:
    """The same schema with durations that have bounds as seconds: of those in text, nearly all are out of bounds."""
    if isinstance(schema, list):
        return [_in_seconds(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "maximum" in schema and "type" not in schema:
        return {"type": "number", "minimum": schema["minimum"], "maximum": schema["maximum"]}
    return {word: _in_seconds(value) for word, value in schema.items()}


def _few_texts(schema: Any) -> Any:
    """The same schema with a few durations and rates: to make one from its pattern takes the tool seconds."""
    if isinstance(schema, list):
        return [_few_texts(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    few = TEXTS.get(schema["pattern"]) if isinstance(schema.get("pattern"), str) else None
    return {"enum": few} if few else {word: _few_texts(value) for word, value in schema.items()}


def _apart(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema with its alternatives as whole objects: the tool makes each field by itself."""
    if not {"oneOf", "properties"} <= schema.keys():
        return schema
    return {"oneOf": [_merged({**schema}, one) for one in schema["oneOf"]]}


def _merged(base: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    del base["oneOf"]
    more = one.get("properties", {})
    fields = {name: part for name, part in base["properties"].items() if more.get(name) is not False}
    fields = {name: {"allOf": [part, more[name]]} if name in more else part for name, part in fields.items()}
    required = [*base.get("required", []), *one.get("required", [])]
    return {**base, **one, "properties": fields, "required": required}


if __name__ == "__main__":
    sys.exit(main())
