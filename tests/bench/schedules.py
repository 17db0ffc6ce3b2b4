"""What a schedule weighs, what its add costs beside a task's, and how late its occurrences come beside tasks."""

import random
from collections.abc import Iterator

import redis

from duecourse.adapters.calendar.calendar import ZonedCalendar
from duecourse.adapters.redis.connect import connect
from duecourse.adapters.redis.store import RedisStore
from duecourse.domain.schedule import Cron, Every, Progress, Rule, Schedule
from duecourse.domain.task import NewTask, new_id
from tests.bench.figures import Figure, in_turn, lateness, per_second
from tests.bench.lateness import AIM, FIRST_MS, OVER_MS, PROBES, add_all, bridged, probes_of
from tests.bench.ledger import HOUR_MS, PAYLOAD, ROUNDS
from tests.bench.server import BenchServer
from tests.support.wait import until

ZONES = ZonedCalendar().version
CRON = Cron("0 9 * * MON-FRI")
ADDS = 500


def figures(server: BenchServer, pending: int) -> Iterator[Figure]:
    """Each on an empty database."""
    with connect(server.url) as client:
        store = RedisStore(client)
        for section in (_weight, _adds, _lateness):
            client.flushall()
            yield section(client, store, server.url, pending)


def _put(store: RedisStore, id: str, nominal: int) -> None:
    schedule = Schedule(id, "report", Rule(CRON, nominal, "Europe/Vienna"), PAYLOAD, by="http")
    store.put_schedule(schedule, Progress(nominal=nominal, next_at=nominal, zones=ZONES))


def _weight(client: redis.Redis, store: RedisStore, _url: str, pending: int) -> Figure:
    empty, later = client.info("memory")["used_memory"], store.now() + HOUR_MS
    for n in range(pending):
        _put(store, f"report-{n:06}", later + n)
    weight = (client.info("memory")["used_memory"] - empty) / pending
    return Figure(
        f"memory of a schedule, {pending:,} of them", f"{weight:.0f} bytes", "≤ 600 bytes", "payload 120 bytes"
    )


def _adds(client: redis.Redis, store: RedisStore, _url: str, _pending: int) -> Figure:
    later = store.now() + HOUR_MS
    spent: dict[str, float] = {"task": 0, "schedule": 0}

    def counted(name: str) -> int:
        before = _used_s(client)
        for _ in range(ADDS):
            if name == "task":
                store.add([NewTask(new_id(), "report", PAYLOAD, delay_ms=HOUR_MS)])
            else:
                _put(store, new_id(), later)
        spent[name] += _used_s(client) - before
        return ADDS

    tasks, schedules = in_turn(ROUNDS, lambda: counted("task"), lambda: counted("schedule"))
    return Figure(
        "add of a schedule, one by one",
        f"{per_second(schedules)} = {schedules / tasks:.2f} x a task's",
        "≥ 1 x a task's",
        f"tasks {per_second(tasks)}; processor of Redis {spent['schedule'] / spent['task']:.2f} x",
    )


def _used_s(client: redis.Redis) -> float:
    """Processor time of the server so far."""
    told = client.info("cpu")
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])


def _lateness(_client: redis.Redis, store: RedisStore, url: str, _pending: int) -> Figure:
    """Half are tasks, half occurrences of schedules that fire once: due at random instants of 20 seconds."""
    with bridged(url) as service:
        begin = store.now() + FIRST_MS
        for n in range(PROBES // 2):
            at = begin + random.randrange(OVER_MS)
            schedule = Schedule(f"late-{n}", "probe", Rule(Every(HOUR_MS), at, until=at), "{}")
            store.put_schedule(schedule, Progress(nominal=at, next_at=at, zones=ZONES))
        add_all(probes_of(["default"])[: PROBES // 2], store)
        until(lambda: min(len(service.late), len(service.occurrences_late)) >= PROBES // 2, seconds=120, every=0.1)
    return Figure(
        "late, occurrences of schedules, bridge",
        lateness(service.occurrences_late),
        AIM,
        f"tasks {lateness(service.late)}",
    )
