"""The operators' page in tests: an API that notes what it is asked, and the headers of the front end."""

import json
from collections.abc import Callable
from typing import Any

from duecourse.in_place import ApiAnswer, ApiRequest

ORIGIN = "http://ops.example"
FRONT_END = {"origin": ORIGIN, "x-duecourse-page": "1", "content-type": "application/json"}
"""Headers of a request of the front end that may change something."""


def answered(status: int, document: Any, **headers: str) -> ApiAnswer:
    return ApiAnswer(status, json.dumps(document).encode(), {"content-type": "application/json", **headers})


class NotedApi:
    """An HTTP API that answers as a function says."""

    name = "store redis://ledger.example (namespace duecourse)"
    tenant: str | None = None

    def __init__(
        self, answer: Callable[[ApiRequest], ApiAnswer] = lambda _asked: answered(200, {"fine": True})
    ) -> None:
        self.asked: list[ApiRequest] = []
        self._answer = answer

    def send(self, request: ApiRequest) -> ApiAnswer:
        self.asked.append(request)
        return self._answer(request)
