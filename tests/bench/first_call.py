"""A function's cold start by where its store's URL comes from: the environment, or a secret that it reads itself.

It is the processor's time, which Lambda stretches by a function's share of a vCPU; the service's answer comes on top.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from duecourse.ringing.bridge_event import warm_event
from duecourse_local.harness.aws.account import CREDENTIALS
from tests.bench.figures import Figure
from tests.bench.server import BenchServer
from tests.support.http_server import Reply, answering
from tests.support.project import ROOT

ROUNDS = 9
HEALTH = json.loads((ROOT / "events" / "enqueue_http" / "health.json").read_text())
FIRST: Mapping[str, Any] = {"on_expired": warm_event([]), "enqueue_http": HEALTH}
"""First events that reach the store and change nothing there."""
PROGRAM = """
import json, sys, time
event = json.loads(sys.stdin.read())
context = type("Context", (), {"get_remaining_time_in_millis": lambda self: 20_000, "aws_request_id": "1"})()
start = time.process_time()
import app
imported = time.process_time()
answer = app.handler(event, context)
called = time.process_time()
assert answer.get("statusCode", 200) == 200, answer
print(json.dumps([(imported - start) * 1000, (called - imported) * 1000]), file=sys.stderr)
"""


def figures(server: BenchServer, _pending: int) -> Iterator[Figure]:
    """The cold import and the first call of two functions, with both values of the template's parameter Secrets."""
    found = json.dumps({"Name": "url", "SecretString": server.url}).encode()
    with answering(lambda _asked: Reply(200, found, {"Content-Type": "application/x-amz-json-1.1"})) as manager:
        sorts = {
            "deploy": {"DUECOURSE_STORE": server.url},
            "runtime": {"DUECOURSE_STORE_SECRET": "url", "AWS_ENDPOINT_URL": manager.url},
        }
        for name in FIRST:
            taken = {sort: [(0.0, 0.0)] * ROUNDS for sort in sorts}
            for turn in range(ROUNDS):
                for sort, given in sorts.items():
                    taken[sort][turn] = _cold(name, given)
            shown = {sort: _shown(times) for sort, times in taken.items()}
            beside = f"Secrets=deploy: {shown['deploy']}"
            yield Figure(f"{name}, Secrets=runtime: cold import + first call", shown["runtime"], "", beside)


def _cold(name: str, given: Mapping[str, str]) -> tuple[float, float]:
    path = os.pathsep.join([str(ROOT / "functions" / name), str(ROOT / "layers" / "core")])
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": path, **CREDENTIALS, **given}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment, input=json.dumps(FIRST[name]), capture_output=True, text=True, check=True,
    )  # fmt: skip
    imported, called = json.loads(done.stderr.splitlines()[-1])
    return imported, called


def _shown(times: list[tuple[float, float]]) -> str:
    imported, called = (statistics.median(column) for column in zip(*times, strict=True))
    return f"{imported:.0f} + {called:.0f} ms"
