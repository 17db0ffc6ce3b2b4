"""What is changed in schemathesis's requests before they are sent."""

import json
from typing import Any

import schemathesis
from schemathesis import Case, HookContext

KEY = "Idempotency-Key"


@schemathesis.hook  # type: ignore[untyped-decorator]
def before_call(_context: HookContext, case: Case, _kwargs: dict[str, Any]) -> None:
    """Put a key that is meant to be valid in quotes: the coverage phase cannot make text of a pattern that has them."""
    headers = case.headers or {}
    meant_well = case.meta is None or not case.meta.generation.mode.is_negative
    if meant_well and KEY in headers and not str(headers[KEY]).startswith('"'):
        headers[KEY] = json.dumps(headers[KEY])
