"""The HTTP API as its users call it."""

from typing import Any

import urllib3

from tests.support.wait import PATIENCE_S, until


class Api:
    """The API at a stack's address."""

    def __init__(self, http: urllib3.PoolManager, url: str) -> None:
        self._http = http
        self._url = url

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """One request: the status, and what the answer says."""
        answer = self._http.request(method, self._url + path, json=body)
        return answer.status, answer.json() if answer.data else None

    def post(self, path: str, body: Any) -> Any:
        """What the answer says to something that must be made."""
        status, made = self.call("POST", path, body)
        assert status == 201, made
        return made

    def add_webhook(self, id: str, url: str, **fields: Any) -> int:
        """Add a task of the kind webhook; answers the status."""
        body = {"id": id, "kind": "webhook", "payload": {"url": url, "body": {}}, **fields}
        return self.call("POST", "/tasks", body)[0]

    def task(self, id: str, queue: str = "default") -> Any:
        """A task as it stands, None where it does not."""
        status, shown = self.call("GET", f"/tasks/{id}?queue={queue}")
        return shown["task"] if status == 200 else None

    def done(self, id: str, seconds: float = PATIENCE_S) -> Any:
        """The task, once it is done."""
        return until(lambda: task if (task := self.task(id))["state"] == "done" else None, seconds=seconds, every=0.05)
