"""What users call: the client, one by one, many at once and from threads; the HTTP API, through the harness."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import redis
import urllib3

from duecourse.app import PROCESS, App
from duecourse.client.client import Client
from duecourse.client.typed_dicts import TaskFields
from duecourse.settings import Settings
from duecourse.tasks.http import MAX_BATCH
from duecourse_local.harness.options import Options, Precision
from duecourse_local.harness.stack import Stack
from tests.bench.figures import PAYLOAD, ROUNDS, Figure, Rounds, in_turn, lateness_of
from tests.bench.server import BenchServer
from tests.bench.stage import Measured

BODY: Any = json.loads(PAYLOAD)
KIND, DELAY = "report", "PT1H"
TARGETS = {KIND: f"lambda:{KIND}"}
CALLS = 300
THREADS = 50
BATCHES = 3
REQUESTS = 1_000
WARMING = 50


def figures(server: BenchServer, _pending: int) -> Measured:
    """Each beside a no-op EVALSHA by redis-py, in turn."""
    with redis.Redis.from_url(server.url) as plain:
        plain.flushall()
        with PROCESS.using(App(Settings(store=server.url, targets=TARGETS))):
            yield list(_client(Client.from_env(), partial(_no_ops, plain, plain.script_load("return 1"))))
        plain.flushall()
        yield from _http(server.url)


def _no_ops(plain: redis.Redis, script: str) -> int:
    for _ in range(CALLS):
        plain.evalsha(script, 0)
    return CALLS


def _client(client: Client, no_ops: Callable[[], int]) -> Iterator[Figure]:
    with ThreadPoolExecutor(THREADS) as crowd:
        works = (no_ops, partial(_one_by_one, client), partial(_many, client), partial(_threads, client, crowd))
        for work in works:
            work()
        limit, single, many, threads = in_turn(ROUNDS, *works)
    no_op, alone = f"no-op EVALSHA {limit.per_second()}", f"one by one {single.per_second()}"
    for name, own, other, unit, aim, beside in (
        ("Client.add, one by one", single, limit, "no-op", "≥ 0.5", no_op),
        (f"Client.add_many, {MAX_BATCH:,} at a time", many, limit, "no-op", "≥ 5", no_op),
        (f"Client.add, {THREADS} threads on one client", threads, single, "one by one", "≥ 3", alone),
    ):
        yield Figure(name, own.beside(other).times(unit), f"{aim} x {unit}", own.per_second(), beside)


def _one_by_one(client: Client, calls: int = CALLS) -> int:
    for _ in range(calls):
        client.add(kind=KIND, payload=BODY, delay=DELAY)
    return calls


def _many(client: Client) -> int:
    asked: TaskFields = {"kind": KIND, "payload": BODY, "delay": DELAY}
    for _ in range(BATCHES):
        client.add_many([asked] * MAX_BATCH)
    return BATCHES * MAX_BATCH


def _threads(client: Client, crowd: ThreadPoolExecutor) -> int:
    return sum(crowd.map(partial(_one_by_one, client), [CALLS // 10] * THREADS))


def _http(url: str) -> Measured:
    """Through the harness: its gateway, the function's own process and its runtime client."""
    environment = {"DUECOURSE_TARGETS": json.dumps(TARGETS)}
    options = Options(store=url, tick=0, precision=Precision.TICK, environment=environment)
    with Stack(options) as stack, urllib3.PoolManager(retries=False, timeout=30) as http:
        task = {"kind": KIND, "payload": BODY, "delay": DELAY}
        post = partial(_post, http, f"{stack.api}/tasks", task, 201)
        batch = partial(_post, http, f"{stack.api}/tasks/batch", {"tasks": [task] * MAX_BATCH}, 200)
        for _ in range(WARMING):
            post()
        took_ms = lateness_of([[post() for _ in range(REQUESTS // ROUNDS)] for _ in range(ROUNDS)])
        yield [Figure("POST /tasks through the harness", "", "p50 ≤ 4, p99 ≤ 10 ms", took_ms, "one at a time")]
        batch()
        rate = Rounds(MAX_BATCH * 1_000 / batch() for _ in range(2 * ROUNDS)).per_second()
        yield [Figure(f"POST /tasks/batch of {MAX_BATCH:,} through the harness", "", "≥ 15,000/s", rate)]


def _post(http: urllib3.PoolManager, url: str, body: object, expected: int) -> float:
    """How many milliseconds it took."""
    began = time.perf_counter()
    answer = http.request("POST", url, json=body)
    took = time.perf_counter() - began
    assert answer.status == expected, answer.data
    return took * 1000
