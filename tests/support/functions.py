"""The functions' own code, loaded from where it is deployed from, and their context."""

import importlib.util
import json
import os
from functools import cache
from types import ModuleType
from typing import Any

from tests.support.project import ROOT


class Context:
    """What Lambda tells a function of its invocation."""

    function_name = "duecourse"
    function_version = "$LATEST"
    memory_limit_in_mb = 256
    invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:duecourse"
    aws_request_id = "5f3c1d0e-7a9b-4c4d-8e8f-0a1b3f1c5d0e"

    def __init__(self, remaining_ms: int = 60_000) -> None:
        self._remaining_ms = remaining_ms

    def get_remaining_time_in_millis(self) -> int:
        return self._remaining_ms


@cache
def load(function: str) -> ModuleType:
    """The module of one function, by the name of its folder; its service is named as the template does."""
    os.environ["POWERTOOLS_SERVICE_NAME"] = "duecourse"
    spec = importlib.util.spec_from_file_location(f"functions_{function}", ROOT / "functions" / function / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def invoke(function: str, event: Any, context: Context | None = None) -> Any:
    """Invoke a function with an event, both ways through JSON as Lambda does it."""
    answer = load(function).handler(json.loads(json.dumps(event)), context or Context())
    return json.loads(json.dumps(answer))


def saved(case: str) -> Any:
    """A saved event: `<function>/<case>`."""
    return json.loads((ROOT / "events" / f"{case}.json").read_text())


def cases(function: str) -> set[str]:
    """The saved events of a function."""
    return {path.stem for path in (ROOT / "events" / function).glob("*.json")}
