"""How long a script keeps the server at most: many tasks of many tenants, some of them as large as a task may be."""

from importlib.resources import files
from typing import Any

import redis

from duecourse.base.ids import new_id
from duecourse.ledger.connect import connect
from duecourse.ledger.many_tasks import TaskFilter
from duecourse.ledger.operation_types import MAX_ADD, MAX_CLAIM, Lease, Move
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import Rate
from duecourse.ledger.script_calls import load
from duecourse.ledger.task import Ending, NewTask, Settlement, Shard, Status, Task
from tests.bench.figures import HOUR_MS, PAYLOAD, Figure
from tests.bench.server import BenchServer
from tests.bench.stage import Measured
from tests.support.wait import until

LARGE = '{"text":"' + "x" * (255 * 1024 - 11) + '"}'
"""255 KB."""
LARGE_TASKS = 300
GROUP = 40
"""How many of them are moved in one step: a reminder is 10 MB at most."""
TENANTS = 10_000
ROUNDS = 10
MANY, BIG, DYING = Shard("many"), Shard("big"), Shard("dying")
AIM_MS = 25


def figures(server: BenchServer, pending: int) -> Measured:
    """Every verb on a queue of `pending` tasks, of large ones, and of large ones that die at once."""
    with connect(server.url) as client:
        assert isinstance(client, redis.Redis)
        client.flushall()
        client.config_set("slowlog-max-len", 1_000_000)
        client.config_set("slowlog-log-slower-than", 500)
        client.slowlog_reset()
        ledger = Ledger(client)
        _fill(ledger, pending)
        for work in (_many, _large, _dying):
            work(ledger)
        worst = _worst(client)
    name, took_ms = next(iter(worst.items()), ("none", 0.5))
    others = ", ".join(f"{other} {ms:.1f}" for other, ms in list(worst.items())[1:4])
    row = (
        f"longest server time of any script, {pending:,} tasks of {min(TENANTS, pending):,} tenants, "
        f"{2 * LARGE_TASKS} of 255 KB"
    )
    yield [Figure(row, "", f"≤ {AIM_MS} ms", f"{took_ms:.1f} ms ({name})", f"then {others}")]


def _fill(ledger: Ledger, pending: int) -> None:
    """Half of them due, half in an hour."""
    ledger.configure(MANY.queue, {"max_running": 10**6, "tenant_max_running": 10**6, "rate": Rate(10**6, 1_000)})
    for start in range(0, pending, MAX_ADD):
        ledger.add(
            [
                NewTask(new_id(), "report", PAYLOAD, MANY.queue, f"t{n % TENANTS}", delay_ms=HOUR_MS * (n % 2))
                for n in range(start, min(pending, start + MAX_ADD))
            ]
        )
    for _ in range(LARGE_TASKS):
        ledger.add([NewTask(new_id(), "report", LARGE, BIG.queue, group="g")])
        ledger.add([NewTask(new_id(), "report", LARGE, DYING.queue, deadline_ms=1)])


def _many(ledger: Ledger) -> None:
    for _ in range(ROUNDS):
        claimed = ledger.claim(MANY, MAX_CLAIM, lease_ms=60_000).tasks
        ledger.extend(MANY, [Lease(t.id, t.token, t.tenant) for t in claimed], 60_000)
        ledger.settle(MANY, [_end(task, n) for n, task in enumerate(claimed)])
        ledger.sweep(MANY, retention_ms=0)
    for tenant in ("t1", "t3"):
        waiting = ledger.page(MANY.queue, TaskFilter(Status.SCHEDULED), None, 100, tenant).tasks
        ledger.move(MANY.queue, [Move(task.id, delay_ms=1) for task in waiting], tenant)
        ledger.throttle(MANY, tenant)
        ledger.cancel(MANY.queue, [task.id for task in waiting], tenant=tenant)
    ledger.stats(MANY)
    ledger.lateness_of([MANY])


def _large(ledger: Ledger) -> None:
    members = ledger.group(BIG.queue, "g")[:GROUP]
    ledger.move(BIG.queue, [Move(task.id, delay_ms=0) for task in members], group="g")
    for _ in range(ROUNDS):
        claimed = ledger.claim(BIG, MAX_CLAIM, lease_ms=60_000).tasks
        ledger.settle(BIG, [_end(task, n) for n, task in enumerate(claimed)])
        ledger.sweep(BIG, retention_ms=0)
    dead = ledger.page(BIG.queue, TaskFilter(Status.DEAD), None, 100).tasks
    ledger.replay(BIG.queue, [task.id for task in dead])
    for task in dead[:5]:
        ledger.take(BIG.queue, task.id, lease_ms=60_000, group="g")


def _dying(ledger: Ledger) -> None:
    until(lambda: not ledger.claim(DYING, MAX_CLAIM, lease_ms=60_000).died, seconds=60, every=0)
    for _ in range(ROUNDS):
        ledger.sweep(DYING, retention_ms=0)


def _end(task: Task, number: int) -> Settlement:
    """Each ending in turn."""
    endings = (Ending.DONE, Ending.AGAIN, Ending.RETRY, Ending.DROP, Ending.RELEASE)
    return Settlement(task.id, task.tenant, task.token, endings[number % len(endings)])


def _worst(client: redis.Redis) -> dict[str, float]:
    """The longest run of each script in milliseconds, the slowest first."""
    folder = files("duecourse.ledger") / "lua"
    names = {load(path.name[:-4]).sha: path.name for path in folder.iterdir() if path.name.endswith(".lua")}
    entries: Any = client.slowlog_get(1_000_000)
    worst: dict[str, float] = {}
    for entry in entries:
        words = entry["command"].split()
        if words[0].upper().startswith(b"EVAL"):
            name = names.get(words[1].decode(errors="replace"), "a script at its first run")
            worst[name] = max(worst.get(name, 0), entry["duration"] / 1000)
    return dict(sorted(worst.items(), key=lambda one: -one[1]))
