"""What a schedule weighs, what its add costs beside a task's, and how late its occurrences come beside tasks."""

import json
import os
import random
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from itertools import islice
from typing import Any

import redis

from duecourse.app import PROCESS, App
from duecourse.base.ids import new_id
from duecourse.client.client import Client
from duecourse.ledger.connect import connect
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.schedule import Became, Cron, Every, Occurrence, Progress, Rule, Schedule
from duecourse.ledger.task import NewTask
from duecourse.schedules.calendar import Calendar
from duecourse.settings import Settings
from tests.bench.figures import HOUR_MS, PAYLOAD, ROUNDS, Figure, in_rounds, in_turn
from tests.bench.lateness import AIM, FIRST_MS, OVER_MS, PROBES, add_all, bridged, probes_of
from tests.bench.server import BenchServer
from tests.bench.stage import Measured
from tests.support.functions import Context, load, saved
from tests.support.wait import until

ZONES = Calendar().version
CRON = Cron("0 9 * * MON-FRI")
ADDS = 500
MOST = 20_000
"""Schedules that are weighed."""
TASK: Any = {"kind": "webhook", "payload": {"url": f"https://a.example/{'x' * 92}"}, "delay": "PT1H"}
SCHEDULE: Any = {
    "kind": "webhook",
    "payload": TASK["payload"],
    "repeat": {"cron": CRON.expression},
    "time_zone": "Europe/Vienna",
}


def figures(server: BenchServer, pending: int) -> Measured:
    """Each on an empty database."""
    with connect(server.url) as client:
        ledger = Ledger(client)
        for section in (_weight, _adds, _lateness):
            client.flushall()
            yield [section(client, ledger, server.url, pending)]
        client.flushall()
        with PROCESS.using(App(Settings(store=server.url))):
            yield from _adds_of_users()


def _put(ledger: Ledger, id: str, nominal: int, recent: tuple[Occurrence, ...] = ()) -> None:
    schedule = Schedule(id, "report", Rule(CRON, nominal, "Europe/Vienna"), PAYLOAD, by="http")
    progress = Progress(nominal=nominal, next_at=nominal, fired=len(recent), zones=ZONES, recent=recent)
    ledger.put_schedule(schedule, progress)


def _weight(client: redis.Redis, ledger: Ledger, _url: str, pending: int) -> Figure:
    """Before the first occurrence, and with ten that are remembered."""
    later = ledger.now() + HOUR_MS
    since = Rule(CRON, later - 20 * 24 * HOUR_MS, "Europe/Vienna")
    ten = tuple(Occurrence(at, Became.DONE) for at in islice(Calendar().times(since, since.starts_at), 10))
    weights, count = [], min(pending, MOST)
    for recent in ((), ten):
        client.flushall()
        empty = client.info("memory")["used_memory"]
        for n in range(count):
            _put(ledger, f"report-{n:06}", later + n, recent)
        weights.append((client.info("memory")["used_memory"] - empty) / count)
    return Figure(
        f"memory of a schedule, {count:,} of them",
        "",
        "≤ 600 bytes",
        "{:.0f} bytes, with ten occurrences {:.0f}".format(*weights),
        "payload 120 bytes",
    )


def _adds(client: redis.Redis, ledger: Ledger, _url: str, _pending: int) -> Figure:
    later = ledger.now() + HOUR_MS
    spent: dict[str, float] = {"task": 0, "schedule": 0}

    def counted(name: str) -> int:
        before = _used_s(client)
        for _ in range(ADDS):
            if name == "task":
                ledger.add([NewTask(new_id(), "report", PAYLOAD, delay_ms=HOUR_MS)])
            else:
                _put(ledger, new_id(), later)
        spent[name] += _used_s(client) - before
        return ADDS

    tasks, schedules = in_turn(ROUNDS, lambda: counted("task"), lambda: counted("schedule"))
    return Figure(
        "add of a schedule, one by one",
        schedules.beside(tasks).times("a task's"),
        "≥ 1 x a task's",
        schedules.per_second(),
        f"tasks {tasks.per_second()}; processor of Redis {spent['schedule'] / spent['task']:.2f} x",
    )


def _adds_of_users() -> Measured:
    """By the client, and by the function of the HTTP API in this process; of each, tasks and schedules in turn."""
    client = Client.from_env()
    handler, context = load("enqueue_http").handler, Context()
    works: dict[str, list[Callable[[], Any]]] = {
        "by the client": [lambda: client.add(**TASK), lambda: client.schedules.add(**SCHEDULE)],
        "by POST, in the function": [
            partial(handler, _post("add_webhook", TASK), context),
            partial(handler, _post("add_schedule", SCHEDULE), context),
        ],
    }
    for how, (task, schedule) in works.items():
        tasks, schedules = in_turn(ROUNDS, partial(_repeat, task), partial(_repeat, schedule))
        ratio, beside = schedules.beside(tasks).times("a task's"), f"tasks {tasks.per_second()}"
        yield [Figure(f"add of a schedule, {how}", ratio, "≥ 0.6 x a task's", schedules.per_second(), beside)]


def _post(case: str, body: Any) -> Any:
    return {**saved(f"enqueue_http/{case}"), "body": json.dumps(body)}


def _repeat(work: Callable[[], Any]) -> int:
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):  # the function writes a metric of each
        for _ in range(ADDS):
            work()
    return ADDS


def _used_s(client: redis.Redis) -> float:
    """Processor time of the server so far."""
    told = client.info("cpu")
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])


def _lateness(_client: redis.Redis, ledger: Ledger, url: str, _pending: int) -> Figure:
    """Half are tasks, half occurrences of schedules that fire once: due at random instants of 20 seconds."""
    with bridged(url) as service:
        begin = ledger.now() + FIRST_MS
        for n in range(PROBES // 2):
            at = begin + random.randrange(OVER_MS)
            schedule = Schedule(f"late-{n}", "probe", Rule(Every(HOUR_MS), at, until=at), "{}")
            ledger.put_schedule(schedule, Progress(nominal=at, next_at=at, zones=ZONES))
        add_all(probes_of(["default"])[: PROBES // 2], ledger)
        until(lambda: min(len(service.late), len(service.occurrences_late)) >= PROBES // 2, seconds=120, every=0.1)
    return Figure(
        "late, occurrences of schedules, bridge",
        "",
        AIM,
        in_rounds(service.occurrences_late),
        f"tasks {in_rounds(service.late)}",
    )
