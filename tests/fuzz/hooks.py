"""What is changed in schemathesis's requests before they are sent."""

from itertools import count
from typing import Any

import schemathesis
from schemathesis import Case, HookContext

KEY = "Idempotency-Key"
NUMBERS = count()


@schemathesis.hook  # type: ignore[untyped-decorator]
def before_call(_context: HookContext, case: Case, _kwargs: dict[str, Any]) -> None:
    """Make a key that is meant well a good one: in quotes, and new, or all but the first request were refused for it.

    The coverage phase cannot make text of a pattern that has quotes, and sends the same key with each request.
    """
    headers = case.headers or {}
    meant_well = case.meta is None or not case.meta.generation.mode.is_negative
    if meant_well and KEY in headers:
        headers[KEY] = f'"{next(NUMBERS)}"'
