"""A function's cold start beside the interpreter's own, and by where its store's URL comes from.

It is the processor's time, which Lambda stretches by a function's share of a vCPU; the service's answer comes on top.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from duecourse.ringing.bridge_event import warm_event
from duecourse_local.harness.aws.account import CREDENTIALS
from tests.bench.figures import ROUNDS, Figure, Rounds
from tests.bench.server import BenchServer
from tests.bench.stage import Measured
from tests.support.http_server import Reply, answering
from tests.support.project import ROOT

HEALTH = json.loads((ROOT / "events" / "enqueue_http" / "health.json").read_text())
FIRST: Mapping[str, Any] = {"on_expired": warm_event([]), "enqueue_http": HEALTH}
"""First events that reach the store and change nothing there."""
AIMS = {"on_expired": "≤ 8 x", "enqueue_http": "≤ 12 x"}
MS = "{:.0f} ms"
PROGRAM = """
import time
begun = time.process_time()
import json, sys
event = json.loads(sys.stdin.read())
context = type("Context", (), {"get_remaining_time_in_millis": lambda self: 20_000, "aws_request_id": "1"})()
start = time.process_time()
import app
imported = time.process_time()
answer = app.handler(event, context)
called = time.process_time()
assert answer.get("statusCode", 200) == 200, answer
print(json.dumps([begun * 1000, (imported - start) * 1000, (called - imported) * 1000]), file=sys.stderr)
"""


def figures(server: BenchServer, _pending: int) -> Measured:
    """The cold import and the first call of two functions, with both values of the template's parameter Secrets."""
    found = json.dumps({"Name": "url", "SecretString": server.url}).encode()
    with answering(lambda _asked: Reply(200, found, {"Content-Type": "application/x-amz-json-1.1"})) as manager:
        sorts = {
            "deploy": {"DUECOURSE_STORE": server.url},
            "runtime": {"DUECOURSE_STORE_SECRET": "url", "AWS_ENDPOINT_URL": manager.url},
        }
        for name in FIRST:
            taken: dict[str, list[Sequence[float]]] = {sort: [] for sort in sorts}
            for _ in range(ROUNDS):
                for sort, given in sorts.items():
                    taken[sort].append(_cold(name, given))
            start, imported, called = (Rounds(column) for column in zip(*taken["deploy"], strict=True))
            _, _, by_secret = (Rounds(column) for column in zip(*taken["runtime"], strict=True))
            ratio, own = imported.beside(start).times("a start of Python"), f"a start of Python {start.shown(MS)}"
            calls = f"with the URL in the environment {called.shown(MS)}"
            yield [
                Figure(f"{name}, cold import", ratio, AIMS[name], imported.shown(MS), own),
                Figure(f"{name}, first call with the URL in a secret", "", "", by_secret.shown(MS), calls),
            ]


def _cold(name: str, given: Mapping[str, str]) -> Sequence[float]:
    path = os.pathsep.join([str(ROOT / "functions" / name), str(ROOT / "layers" / "core")])
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": path, **CREDENTIALS, **given}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment, input=json.dumps(FIRST[name]), capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: list[float] = json.loads(done.stderr.splitlines()[-1])
    return found
