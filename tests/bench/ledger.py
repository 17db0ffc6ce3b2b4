"""What the ledger and the engine do in a second, and what a pending task weighs."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache, partial

import redis

from duecourse.base.ids import new_id
from duecourse.ledger.connect import connect
from duecourse.ledger.operation_types import MAX_ADD
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue import Rate
from duecourse.ledger.task import DEFAULT_QUEUE, Done, Ending, NewTask, Settlement, Shard, Task
from duecourse.running.drain import Drainer, Limits
from duecourse.running.run import Kind, Runner
from duecourse.running.threads import Threads
from tests.bench.figures import HOUR_MS, PAYLOAD, ROUNDS, Figure, in_turn
from tests.bench.server import BenchServer
from tests.bench.stage import Measured
from tests.support.engine import fire_nothing, targets_of

BATCH = 200
MOST = 50_000
"""Tasks of a section: more take minutes and show the same."""
TENANTS = 100
WORKERS = 4
THREADS = 16
SHARD = Shard()


def figures(server: BenchServer, pending: int) -> Measured:
    """Each on an empty database."""
    pending = min(pending, MOST)
    with connect(server.url) as client:
        ledger = Ledger(client)
        for section in (_single, _bulk, _weight, _claim_and_settle, _claim_beside_settle, _engine):
            client.flushall()
            yield [section(client, ledger, pending)]
        client.flushall()
        with ProcessPoolExecutor(WORKERS) as crowd:
            yield [_claim_and_settle_in_a_crowd(server, ledger, pending, crowd)]


def _tasks(count: int, delay_ms: int = 0) -> list[NewTask]:
    return [NewTask(new_id(), "report", PAYLOAD, delay_ms=delay_ms + i if delay_ms else 0) for i in range(count)]


def _fill(ledger: Ledger, count: int, delay_ms: int = 0, queue: str = DEFAULT_QUEUE) -> None:
    for start in range(0, count, MAX_ADD):
        ledger.add([task._replace(queue=queue) for task in _tasks(min(MAX_ADD, count - start), delay_ms)])


def _single(client: redis.Redis, ledger: Ledger, _pending: int) -> Figure:
    noop = client.script_load("return 1")

    def call() -> int:
        for _ in range(1_000):
            client.evalsha(noop, 0)
        return 1_000

    def add() -> int:
        for _ in range(1_000):
            ledger.add([NewTask(new_id(), "report", PAYLOAD, delay_ms=HOUR_MS)])
        return 1_000

    limit, single = in_turn(ROUNDS, call, add)
    return Figure(
        "add, one by one",
        single.beside(limit).times("no-op"),
        "≥ 0.65 x no-op",
        single.per_second(),
        f"no-op EVALSHA {limit.per_second()}",
    )


def _pairs(client: redis.Redis) -> Callable[[], int]:
    """The machine's own limit: what a task costs at least, in pipelines of 100."""
    record = b"x" * 200

    def pairs() -> int:
        for _ in range(20):
            pipe = client.pipeline(transaction=False)
            for _ in range(100):
                id = new_id()
                pipe.zadd("limit:due", {id: random.random()})
                pipe.hset("limit:tasks", id, record)
            pipe.execute()
        return 2_000

    return pairs


def _bulk(client: redis.Redis, ledger: Ledger, _pending: int) -> Figure:
    batches = iter([_tasks(MAX_ADD, HOUR_MS) for _ in range(2 * 10 * ROUNDS)])

    def add() -> int:
        for _ in range(10):
            ledger.add(next(batches))
        return 10 * MAX_ADD

    limit, bulk = in_turn(ROUNDS, _pairs(client), add)
    return Figure(
        f"add, {MAX_ADD:,} at a time",
        bulk.beside(limit).times("pairs"),
        "≥ 75,000/s",
        bulk.per_second(),
        f"pipelined ZADD+HSET pairs {limit.per_second()}",
    )


def _weight(client: redis.Redis, ledger: Ledger, pending: int) -> Figure:
    empty = client.info("memory")["used_memory"]
    _fill(ledger, pending, HOUR_MS)
    weight = (client.info("memory")["used_memory"] - empty) / pending
    beside = "payload 120 bytes, all indexes"
    return Figure("memory of a pending task", "", "≤ 420 bytes", f"{weight:.0f} bytes", beside)


def _claim_and_settle(client: redis.Redis, ledger: Ledger, pending: int) -> Figure:
    """By one worker, one after the other: of one tenant without limits, and of a hundred with all of them on."""
    each = pending // ROUNDS // BATCH * BATCH
    free, limited = Shard("free"), _limited(ledger, ROUNDS * each)
    _fill(ledger, ROUNDS * each, queue=free.queue)
    works = (partial(_drain, ledger, free, each), partial(_drain, ledger, limited, each))
    limit, one, many = in_turn(ROUNDS, _pairs(client), *works)
    return Figure(
        f"claim + settle, {BATCH} at a time, one worker: one tenant; {TENANTS} tenants with every limit",
        f"{one.beside(limit).times()}; {many.beside(limit).times('pairs')}",
        "≥ 50,000/s",
        f"{one.per_second()}; {many.per_second()}",
        f"pipelined ZADD+HSET pairs {limit.per_second()}",
    )


def _claim_beside_settle(client: redis.Redis, ledger: Ledger, pending: int) -> Figure:
    """By one worker that claims while it settles what it had before, as a drain does."""
    each = pending // ROUNDS // BATCH * BATCH
    shard = _limited(ledger, ROUNDS * each)
    with ThreadPoolExecutor(1) as clerk:
        limit, many = in_turn(ROUNDS, _pairs(client), partial(_drain_beside, ledger, shard, each, clerk))
    return Figure(
        f"claim beside settle, {BATCH} at a time, one worker, {TENANTS} tenants with every limit",
        many.beside(limit).times("pairs"),
        "≥ 50,000/s",
        many.per_second(),
        f"pipelined ZADD+HSET pairs {limit.per_second()}",
    )


def _claim_and_settle_in_a_crowd(
    server: BenchServer, ledger: Ledger, pending: int, crowd: ProcessPoolExecutor
) -> Figure:
    """By workers beside one another, each a process of its own: what the store bears."""
    each = max(BATCH, pending // ROUNDS // WORKERS // BATCH * BATCH)
    shard = _limited(ledger, ROUNDS * WORKERS * each)

    def in_a_crowd(work: Callable[..., int], *arguments: object) -> int:
        started: list[Future[int]] = [crowd.submit(work, server.url, *arguments) for _ in range(WORKERS)]
        return sum(future.result() for future in started)

    works = (partial(in_a_crowd, _pairs_there), partial(in_a_crowd, _drain_there, shard, each))
    limit, many = in_turn(ROUNDS, *works)
    return Figure(
        f"claim + settle, {BATCH} at a time, {WORKERS} workers, {TENANTS} tenants with every limit",
        many.beside(limit).times("pairs"),
        "",
        many.per_second(),
        f"pairs by {WORKERS} workers {limit.per_second()}",
    )


def _limited(ledger: Ledger, count: int) -> Shard:
    """A queue with every limit, each wide enough never to be reached, and due tasks of a hundred tenants."""
    wide = Rate(10**6, 1_000)
    ledger.configure("limited", {"max_running": 10**6, "tenant_max_running": 10**6, "rate": wide})
    for _ in range(count // BATCH):
        ledger.add([NewTask(new_id(), "report", PAYLOAD, "limited", f"t{n % TENANTS}") for n in range(BATCH)])
    return Shard("limited")


def _drain(ledger: Ledger, shard: Shard, count: int) -> int:
    done = 0
    while done < count:
        done += _settle(ledger, shard, _claim(ledger, shard))
    return done


def _drain_beside(ledger: Ledger, shard: Shard, count: int, clerk: ThreadPoolExecutor) -> int:
    done, tasks = 0, _claim(ledger, shard)
    for _ in range(count // BATCH - 1):
        settling = clerk.submit(_settle, ledger, shard, tasks)
        tasks = _claim(ledger, shard)
        done += settling.result()
    return done + _settle(ledger, shard, tasks)


def _claim(ledger: Ledger, shard: Shard) -> list[Task]:
    return ledger.claim(shard, BATCH, lease_ms=60_000).tasks


def _settle(ledger: Ledger, shard: Shard, tasks: Sequence[Task]) -> int:
    return len(ledger.settle(shard, [Settlement(t.id, t.tenant, t.token, Ending.DONE) for t in tasks]))


def _drain_there(url: str, shard: Shard, count: int) -> int:
    return _drain(Ledger(_client_there(url)), shard, count)


def _pairs_there(url: str) -> int:
    return _pairs(_client_there(url))()


@cache
def _client_there(url: str) -> redis.Redis:
    """A worker's own connection, for all its rounds."""
    return connect(url)


def _engine(client: redis.Redis, ledger: Ledger, pending: int) -> Figure:
    """A resident worker: of tasks whose handler reads what they carry, and of tasks whose handler does not."""
    shards = [Shard(f"engine-{n}") for n in range(2 * ROUNDS)]
    for shard in shards:
        _fill(ledger, pending // ROUNDS, queue=shard.queue)
    free = iter(shards)
    works = (lambda: _work(ledger, next(free), _reads), lambda: _work(ledger, next(free), lambda _task: Done()))
    limit, reading, idle = in_turn(ROUNDS, _pairs(client), *works)
    return Figure(
        f"tasks, engine level, {THREADS} threads: a handler that reads its payload; one that does nothing",
        f"{reading.beside(limit).times()}; {idle.beside(limit).times('pairs')}",
        "≥ 40,000/s",
        f"{reading.per_second()}; {idle.per_second()}",
        f"pipelined ZADD+HSET pairs {limit.per_second()}",
    )


def _reads(task: Task) -> Done:
    return Done(len(task.payload["user"]))


def _work(ledger: Ledger, shard: Shard, kind: Kind) -> int:
    threads = Threads(THREADS)
    runner = Runner(lambda _kind: kind, None, ledger.now, random.Random())
    drainer = Drainer(ledger, runner, targets_of({}, Nobody()), threads, Limits(60_000, 0), fire_nothing)
    done = drainer.drain([shard], lambda: 60_000).done
    threads.close()
    return done


class Nobody:
    """Invoker of no function: the tasks here are worked in place."""

    def invoke(self, function: str, event: object) -> object:
        raise NotImplementedError

    def send(self, function: str, event: object) -> None:
        raise NotImplementedError
