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
from tests.bench.figures import Figure, in_turn, lateness, per_second
from tests.bench.ledger import PAYLOAD, ROUNDS
from tests.bench.server import BenchServer

BODY: Any = json.loads(PAYLOAD)
KIND, DELAY = "report", "PT1H"
TARGETS = {KIND: f"lambda:{KIND}"}
CALLS = 300
THREADS = 50
BATCHES = 3
REQUESTS = 1_000
WARMING = 50


def figures(server: BenchServer, _pending: int) -> Iterator[Figure]:
    """Each beside a no-op EVALSHA by redis-py, in turn."""
    with redis.Redis.from_url(server.url) as plain:
        plain.flushall()
        with PROCESS.using(App(Settings(store=server.url, targets=TARGETS))):
            yield from _client(Client.from_env(), partial(_no_ops, plain, plain.script_load("return 1")))
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
    beside = f"no-op EVALSHA {per_second(limit)}"
    yield _row("Client.add, one by one", single, limit, "≥ 0.5 x no-op", beside)
    yield _row(f"Client.add_many, {MAX_BATCH:,} at a time", many, limit, "≥ 5 x no-op", beside)
    ratio = f"{per_second(threads)} = {threads / single:.2f} x one by one"
    yield Figure(f"Client.add, {THREADS} threads on one client", ratio, "≥ 3 x one by one", beside)


def _row(name: str, rate: float, limit: float, aim: str, beside: str) -> Figure:
    return Figure(name, f"{per_second(rate)} = {rate / limit:.2f} x no-op", aim, beside)


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


def _http(url: str) -> Iterator[Figure]:
    """Through the harness: its gateway, the function's own process and its runtime client."""
    environment = {"DUECOURSE_TARGETS": json.dumps(TARGETS)}
    options = Options(store=url, tick=0, precision=Precision.TICK, environment=environment)
    with Stack(options) as stack, urllib3.PoolManager(retries=False, timeout=30) as http:
        task = {"kind": KIND, "payload": BODY, "delay": DELAY}
        post = partial(_post, http, f"{stack.api}/tasks", task, 201)
        batch = partial(_post, http, f"{stack.api}/tasks/batch", {"tasks": [task] * MAX_BATCH}, 200)
        took_ms = [post() for _ in range(WARMING + REQUESTS)][WARMING:]
        yield Figure("POST /tasks through the harness", lateness(took_ms), "p50 ≤ 4, p99 ≤ 10 ms", "one at a time")
        took_ms = [batch() for _ in range(2 + 3 * ROUNDS)][2:]
        rate = per_second(MAX_BATCH * 1000 / sorted(took_ms)[len(took_ms) // 2])
        yield Figure(f"POST /tasks/batch of {MAX_BATCH:,} through the harness", rate, "≥ 15,000/s", "median")


def _post(http: urllib3.PoolManager, url: str, body: object, expected: int) -> float:
    """How many milliseconds it took."""
    began = time.perf_counter()
    answer = http.request("POST", url, json=body)
    took = time.perf_counter() - began
    assert answer.status == expected, answer.data
    return took * 1000
