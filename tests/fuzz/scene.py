"""What there is before schemathesis begins: tasks under lease, dead ones, reminders, queries, schedules."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from duecourse import Client
from duecourse.app import PROCESS
from duecourse.base.json_text import Json
from duecourse.ledger.task import AddResult, Ending, Settlement, Shard

SCENE = "DUECOURSE_FUZZ_SCENE"
"""The environment's word for the file that tells `hooks` what stands."""
NOBODY = "http://127.0.0.1:9/"
TENANT = "fuzz"
"""Nobody else's requests change what is its."""
EACH = 150
"""More than the requests to any one route that are meant well: none meets what another one changed."""
LEASE_MS = 86_400_000
HOOK: Json = {"url": NOBODY}
MEETING: dict[str, Any] = {
    "subject": "Fuzz",
    "starts_at": "2100-01-04T09:30:00Z",
    "remind_before": ["PT5M"],
    "recipients": [{"email": "ada@example.com"}],
}

Standing = tuple[str, str | None]
"""An id, and the token of its lease."""


def built(asked: str) -> dict[str, list[Standing]]:
    """What stands now, by what it is for, all of it TENANT's; `asked` answers queries."""
    client = Client.from_env(TENANT)
    dead = _leased(client, "dead")
    ends = [Settlement(id, TENANT, str(token), Ending.DROP, detail="no use") for id, token in dead]
    PROCESS.app().ledger.settle(Shard(), ends)
    return {
        "leased": _leased(client, "leased"),
        "dead": dead,
        "scheduled": [(id, None) for id in _added(client, "scheduled", delay="P1D")],
        "reminders": [(_reminder(client, f"fuzz-{n}"), None) for n in range(EACH)],
        "queries": [(_query(client, f"{asked}?n={n}"), None) for n in range(EACH)],
        "schedules": [(_schedule(client, f"daily-{n}"), None) for n in range(EACH)],
        "leaving": [(_schedule(client, f"leaving-{n}"), None) for n in range(EACH)],
    }


def _added(client: Client, name: str, **fields: Any) -> list[str]:
    asked: list[Any] = [{"id": f"{name}-{n}", "kind": "webhook", "payload": HOOK, **fields} for n in range(EACH)]
    return [taken.task.id for taken in client.add_many(asked) if isinstance(taken, AddResult)]


def _leased(client: Client, name: str) -> list[Standing]:
    _added(client, name)
    return [(task.id, task.token) for task in PROCESS.app().ledger.claim(Shard(), EACH, lease_ms=LEASE_MS).tasks]


def _reminder(client: Client, name: str) -> str:
    client.reminders.add(id=name, **MEETING)
    return name


def _schedule(client: Client, name: str) -> str:
    client.schedules.add(id=name, kind="webhook", payload=HOOK, repeat={"cron": "0 9 * * *"})
    return name


def _query(client: Client, url: str) -> str:
    return client.query(url=url, interval=10, until="ready").id


@contextmanager
def answering() -> Iterator[str]:
    """The URL of an API that is ready whatever it is asked."""
    server = _Server(("127.0.0.1", 0), _Ready)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Some queries have a millisecond for it and hang up."""


class _Ready(BaseHTTPRequestHandler):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._answer
        raise AttributeError(name)

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self) -> None:
        body = json.dumps({"ready": True, "rows": [1, 2]}).encode()
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
