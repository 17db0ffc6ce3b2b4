"""A tree's slices of work, for `tests.bench.beside`: its names are those that every tree of this year has."""

import json
import random
import sys
import time

from duecourse.base.ids import new_id
from duecourse.bridge import Bridge
from duecourse.ledger.connect import connect
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import Rate
from duecourse.ledger.redis_bells import RedisBells
from duecourse.ledger.schedule import Every, Progress, Rule, Schedule
from duecourse.ledger.task import Ending, NewTask, Settlement, Shard
from duecourse.ringing.bridge import LambdaRingHandler
from duecourse.schedules.calendar import Calendar
from tests.bench.lateness import InProcess

BATCHES = {"free": (200, 20), "limited": (200, 20), "single": (1, 1_000)}
"""Of each slice, the tasks of a claim and how many claims it has."""
PAYLOAD = '{"user":"' + "x" * 109 + '"}'
LATE, OVER_MS = 700, 8_000
ZONES = Calendar().version


def work(ledger: Ledger, client: object, name: str) -> list[float]:
    """Claim and settle what was added before; answers the time on the wall and the server's (s)."""
    size, claims = BATCHES[name]
    shard = Shard(name)
    if name == "limited":
        ledger.configure(name, {"max_running": 10**6, "tenant_max_running": 10**6, "rate": Rate(10**6, 1_000)})
    tasks = [
        NewTask(new_id(), "report", PAYLOAD, name, f"t{n % 100}" if name == "limited" else "-")
        for n in range(size * claims)
    ]
    for start in range(0, len(tasks), 1_000):
        ledger.add(tasks[start : start + 1_000])
    used, wall, done = used_s(client), time.perf_counter(), 0
    while done < len(tasks):
        found = ledger.claim(shard, size, lease_ms=60_000).tasks
        done += len(ledger.settle(shard, [Settlement(t.id, t.tenant, t.token, Ending.DONE) for t in found]))
    took = [time.perf_counter() - wall, used_s(client) - used]
    ledger.sweep(shard, retention_ms=0)
    return took


def used_s(client: object) -> float:
    """Processor time of the server's main thread so far."""
    told = client.info("cpu")  # type: ignore[attr-defined]
    return float(told["used_cpu_user_main_thread"]) + float(told["used_cpu_sys_main_thread"])


def late(url: str, ledger: Ledger, *, schedules: bool) -> list[int]:
    """Lateness (ms) of tasks by a bridge, or of occurrences of schedules that fire once."""
    service = InProcess(ledger)
    bridge = Bridge(RedisBells(url, "duecourse", events=True), LambdaRingHandler(service, "on_expired"))
    bridge.start()
    assert bridge.wait_ready(30)
    delays = [1_000 + random.randrange(OVER_MS) for _ in range(LATE)]
    if schedules:
        begin = ledger.now()
        for delay in delays:
            put_once(ledger, begin + delay)
    else:
        ledger.add([NewTask(new_id(), "probe", delay_ms=delay) for delay in delays])
    found = service.occurrences_late if schedules else service.late
    while len(found) < LATE:
        time.sleep(0.05)
    bridge.stop()
    service.close()
    return found


def put_once(ledger: Ledger, at: int) -> None:
    """Add a schedule that fires once, at an instant (epoch ms)."""
    rule = Rule(Every(3_600_000), at, until=at)
    ledger.put_schedule(Schedule(new_id(), "probe", rule, "{}"), Progress(nominal=at, next_at=at, zones=ZONES))


def main(url: str) -> None:
    """Answer each line's slice."""
    with connect(url) as client:
        ledger = Ledger(client)
        for line in sys.stdin:
            name = line.strip()
            if name in {"late", "fired"}:
                print(json.dumps(late(url, ledger, schedules=name == "fired")), flush=True)
            else:
                print(json.dumps(work(ledger, client, name)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
