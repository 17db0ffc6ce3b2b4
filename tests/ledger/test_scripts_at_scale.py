"""However many there are of anything, a script does no more: its work is bounded, and it reads no collection whole."""

import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import redis

from duecourse.base.hints import COMPARED, alike
from duecourse.errors import DuecourseError
from duecourse.ledger import script_calls
from duecourse.ledger.keys import deployed_key, keys_of, made_key, makers_key, shards_key
from duecourse.ledger.maintenance import Mend
from duecourse.ledger.many_tasks import Act, Bulk, Deaths, TaskFilter
from duecourse.ledger.operation_types import FORGET_MS, MAX_ADD, MAX_CLAIM, Delivery, Move
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.schedule import Progress
from duecourse.ledger.script_calls import load
from duecourse.ledger.task import Apart, Ending, Status
from tests.support.clock import START, HandClock
from tests.support.ledger import LEASE_MS, SHARD, ending, lease_of, new
from tests.support.matrix import LENGTHY, MATRIX
from tests.support.proxies import load_scripts
from tests.support.redis_monitor import words_said
from tests.support.redis_server import REDIS, RedisServer
from tests.support.schedules import fire, series

pytestmark = pytest.mark.slow

QUEUE = SHARD.queue
KEYS = keys_of("duecourse", SHARD)
FEW, TWICE = 3_000, 6_000
"""Both are above every bound of a script: what is bounded costs the same at twice as many."""
SLACK = 1.15
HOUR_MS = 3_600_000
BATCH = 10_000


class Scene:
    """A ledger, and a number of things in it."""

    def __init__(self, client: redis.Redis, clock: HandClock, count: int) -> None:
        self.client = client
        self.clock = clock
        self.count = count
        self.ledger = Ledger(client, travel=clock, max_queues=5, deaths=True)

    def names(self, prefix: str) -> list[str]:
        return [f"{prefix}{n:06}" for n in range(self.count)]

    def add(self, prefix: str = "a", **fields: object) -> None:
        """So many tasks; with `tenants` each of another tenant."""
        each = fields.pop("tenants", False)
        tasks = [new(id, **({"tenant": id} if each else {}), **fields) for id in self.names(prefix)]
        for first in range(0, self.count, MAX_ADD):
            self.ledger.add(tasks[first : first + MAX_ADD])

    def claim_all(self, **more: object) -> None:
        while self.ledger.claim(SHARD, MAX_CLAIM, lease_ms=LEASE_MS, **more).tasks:  # type: ignore[arg-type]
            pass

    def put_aside(self) -> None:
        while self.ledger.claim(SHARD, MAX_CLAIM, lease_ms=LEASE_MS, kinds=["none"]).aside:
            pass

    def sweep(self, retention_ms: int = 0, steps: int = 12) -> None:
        for _ in range(steps):
            if not self.ledger.sweep(SHARD, retention_ms=retention_ms, dead_retention_ms=retention_ms).more:
                return

    def use(self) -> None:
        """What is done again and again, whatever there is."""
        ledger = self.ledger
        ledger.add([new("own"), new("late", delay_ms=HOUR_MS), new("g", group="g")], echo=True)
        ledger.move(QUEUE, [Move("late", delay_ms=HOUR_MS)])
        claim = ledger.claim(SHARD, 10, lease_ms=LEASE_MS, deliveries={"report": Delivery("lambda:r", 10, LEASE_MS)})
        if claim.tasks:
            ledger.extend(SHARD, [lease_of(task) for task in claim.tasks], LEASE_MS)
            ledger.settle(SHARD, [ending(task, Ending.DONE) for task in claim.tasks])
        ledger.cancel(QUEUE, ["late", "own"])
        ledger.take(QUEUE, "g", lease_ms=LEASE_MS, group="g")
        ledger.throttle(SHARD)
        ledger.stats(SHARD)
        ledger.stats_of_tenant([SHARD], "-")
        ledger.outlook_of([SHARD])
        for status in Status:
            ledger.page(QUEUE, TaskFilter(status), None, 10)
        ledger.deaths(QUEUE, Deaths("", "", "", 0, 10))
        self.sweep(HOUR_MS)


Act_ = Callable[[Scene], object]


def directly(client: redis.Redis, key: str, members: Iterator[str] | list[str], score: float = 0) -> None:
    """Members of a sorted set, as if scripts had written them."""
    every = list(members)
    for first in range(0, len(every), BATCH):
        client.zadd(key, dict.fromkeys(every[first : first + BATCH], score))


def fields(client: redis.Redis, key: str, names: list[str], value: str) -> None:
    for first in range(0, len(names), BATCH):
        client.hset(key, mapping=dict.fromkeys(names[first : first + BATCH], value))


def register_shards(scene: Scene) -> None:
    names = scene.names("z")
    for first in range(0, scene.count, BATCH):
        scene.client.sadd(shards_key("duecourse"), *(f"{name}/0/1" for name in names[first : first + BATCH]))


def make_queues(scene: Scene) -> None:
    register_shards(scene)
    names = scene.names("z")
    fields(scene.client, makers_key("duecourse"), [f"t{name}/{name}" for name in names], "0")
    directly(scene.client, made_key("duecourse"), [f"t{name}/{name}/0/1" for name in names])


def park(scene: Scene) -> None:
    """Two tasks of each tenant, of which one runs."""
    scene.ledger.configure(QUEUE, {"tenant_max_running": 1})
    scene.add("a", tenants=True)
    tasks = [new("second", tenant=name) for name in scene.names("a")]
    for first in range(0, scene.count, MAX_ADD):
        scene.ledger.add(tasks[first : first + MAX_ADD])
    scene.claim_all()
    assert scene.client.zcard(KEYS.parked) == scene.count


def wait_for_a_kind(scene: Scene) -> None:
    scene.add(kind="ghost", tenants=True)
    scene.put_aside()


def purge_what_waits(scene: Scene) -> None:
    """Tasks of one tenant that were put aside, and are deleted."""
    scene.add(kind="ghost")
    scene.put_aside()
    while scene.ledger.bulk(QUEUE, Bulk(Act.DELETE, (Status.SCHEDULED,), limit=1_000)).tasks:
        pass


def add_schedules(scene: Scene) -> None:
    for id in scene.names("s"):
        scene.ledger.put_schedule(series(id), Progress(nominal=START + HOUR_MS, next_at=START + HOUR_MS, zones="2026f"))


def end(how: Ending) -> Callable[[Scene], None]:
    def act(scene: Scene) -> None:
        scene.add()
        while tasks := scene.ledger.claim(SHARD, MAX_CLAIM, lease_ms=LEASE_MS).tasks:
            scene.ledger.settle(SHARD, [ending(task, how) for task in tasks])

    return act


def lease(scene: Scene) -> None:
    scene.add(tenants=True)
    scene.claim_all()


def mend(scene: Scene) -> None:
    Mend(scene.client, "duecourse", LEASE_MS, lambda _: None, scene.clock).run()


def count_minutes(scene: Scene) -> None:
    scene.ledger.configure(QUEUE, {"tenant_adds_per_minute": 100})
    scene.ledger.add([new("first", tenant="acme")])
    fields(scene.client, KEYS.meta, [f"adds:{name}" for name in scene.names("t")], "1")


def count_wrongly(scene: Scene) -> None:
    """Bytes of tenants that have none, in a queue that counts no more."""
    scene.ledger.configure(QUEUE, {"tenant_max_bytes": 1_000})
    fields(scene.client, KEYS.meta, [f"bytes:{name}" for name in scene.names("t")], "1")
    scene.ledger.configure(QUEUE, {"tenant_max_bytes": None})


def forget_requests(scene: Scene) -> None:
    directly(scene.client, "duecourse:{requests}:begun", scene.names("-/k"), 1)
    directly(scene.client, "duecourse:{requests}:used", scene.names("t"), 1)


def new_queues(scene: Scene) -> None:
    for n in range(2):
        scene.ledger.add([new("a", queue=f"new{n}", tenant="acme")])
    with suppress(DuecourseError):
        for n in range(9):
            scene.ledger.add([new("a", queue=f"more{n}", tenant="acme")])


def leave(scene: Scene) -> None:
    scene.ledger.configure(QUEUE, {"tenant_adds_per_minute": None})
    scene.ledger.bulk(QUEUE, Bulk(Act.DELETE, (Status.SCHEDULED,), limit=9), tenant="acme")
    scene.sweep(steps=1)
    scene.clock.advance(FORGET_MS)
    for _ in range(30):
        scene.sweep(steps=1)


def set_limits(scene: Scene) -> None:
    for most in (2, None, 1):
        scene.ledger.configure(QUEUE, {"tenant_max_running": most})


def lapse(scene: Scene) -> None:
    scene.clock.advance(LEASE_MS)
    scene.sweep(HOUR_MS, steps=2)
    scene.ledger.claim(SHARD, MAX_CLAIM, lease_ms=LEASE_MS)


def bulk(scene: Scene) -> None:
    for act, status in ((Act.COUNT, Status.DONE), (Act.CANCEL, Status.SCHEDULED), (Act.DELETE, Status.CANCELLED)):
        scene.ledger.bulk(QUEUE, Bulk(act, (status,), limit=1_000))
    scene.ledger.page(QUEUE, TaskFilter(), None, 100)


def dead(scene: Scene) -> None:
    scene.ledger.deaths(QUEUE, Deaths())
    scene.ledger.replay(QUEUE, scene.names("a")[:5])
    scene.sweep()


def of_a_group(scene: Scene) -> None:
    scene.ledger.page(QUEUE, TaskFilter(group="g"), None, 100)
    scene.ledger.bulk(QUEUE, Bulk(Act.CANCEL, (Status.SCHEDULED,), group="g", limit=100))
    scene.ledger.add([new("apart", group="g", apart=Apart("x", "y"))])


def of_schedules(scene: Scene) -> None:
    scene.ledger.schedules(QUEUE, "", 10)
    fire(scene.ledger, "s000001")
    scene.ledger.drop_schedule(QUEUE, "s000002")
    scene.clock.advance(HOUR_MS)
    scene.use()


def claim_what_waits(scene: Scene) -> None:
    scene.ledger.claim(SHARD, MAX_CLAIM, lease_ms=LEASE_MS, kinds=["ghost"])
    scene.clock.advance(HOUR_MS)
    scene.ledger.claim(SHARD, MAX_CLAIM, lease_ms=LEASE_MS)


SCENES: dict[str, tuple[Act_, Act_]] = {
    "registered shards": (register_shards, new_queues),
    "queues that tenants made": (make_queues, new_queues),
    "tasks of one tenant": (lambda scene: scene.add(), bulk),
    "tasks to come": (lambda scene: scene.add(delay_ms=LEASE_MS), bulk),
    "tenants with due tasks": (lambda scene: scene.add(tenants=True), lambda scene: scene.claim_all()),
    "tenants to come": (lambda scene: scene.add(tenants=True, delay_ms=HOUR_MS), lambda scene: scene.sweep()),
    "parked tenants": (park, set_limits),
    "tasks that wait for a kind": (wait_for_a_kind, claim_what_waits),
    "entries of tasks that wait no more": (purge_what_waits, claim_what_waits),
    "schedules": (add_schedules, of_schedules),
    "done tasks": (end(Ending.DONE), lambda scene: scene.sweep()),
    "dead tasks": (end(Ending.DROP), dead),
    "leases": (lease, lapse),
    "leases that are counted anew": (lease, mend),
    "members of a group": (lambda scene: scene.add(group="g", delay_ms=HOUR_MS), of_a_group),
    "minutes of tenants": (count_minutes, leave),
    "counts of tenants": (count_wrongly, lambda scene: scene.sweep()),
    "requests": (forget_requests, lambda scene: scene.ledger.idempotency().prune()),
    "what deployments have": (
        lambda scene: directly(scene.client, deployed_key("duecourse"), scene.names("inline k"), 1),
        lambda scene: scene.ledger.deployments().write(["a"], ["b"]),
    ),
}


def most_words(server: RedisServer, clock: HandClock, name: str, count: int) -> dict[str, int]:
    """The most that each script has said in a scene, by the script's name."""
    fill, act = SCENES[name]
    with server.emptied().client() as client:
        scene = Scene(client, clock, count)
        fill(scene)
        with words_said(server) as most:
            scene.use()
            act(scene)
            scene.use()
    verbs = {load(verb).sha: verb for verb in script_calls.verbs()}
    return {verbs[sha]: words for sha, words in most.items() if sha in verbs}


@LENGTHY
@pytest.mark.parametrize("name", SCENES)
def test_no_script_does_more_where_there_are_twice_as_many(redis_server: RedisServer, name: str) -> None:
    few = most_words(redis_server, HandClock(), name, FEW)
    many = most_words(redis_server, HandClock(), name, TWICE)
    assert few.keys() == many.keys()
    grown = {verb: (few[verb], words) for verb, words in many.items() if words > SLACK * few[verb] + 50}
    assert grown == {}


WHOLE = re.compile(r"'(HGETALL|HKEYS|HVALS|SMEMBERS|KEYS|SORT)'|'ZRANGE', [\w.\[\]]+, '?0'?, '?-1'?[,)]")
MAY = {
    "lines": "13 slots of some 200 buckets",
    "schedule_file": "what the files begun since the last one settled were to make",
    "add": "a reminder's messages: at most as many as a reminder may have, unless a caller's tasks are of its group",
    "mend": "leases, of a repair that an operator asks for: no more than 5,000, else Python counts them",
}


def test_no_script_reads_a_whole_collection() -> None:
    """What is read whole takes one word, and all the time that there is."""
    for path in (*script_calls.LUA.glob("*.lua"), *script_calls.LUA.glob("modules/*.lua")):
        if path.stem not in MAY:
            assert not WHOLE.search(path.read_text()), path.stem


MANY, LONGEST_MS = 100_000, 10
ROUNDS = 4


@MATRIX
@LENGTHY
@pytest.mark.parametrize("name", SCENES)
def test_no_script_takes_ten_milliseconds_at_a_hundred_thousand_of_anything(
    server_of: Callable[[str], RedisServer], name: str
) -> None:
    """The fastest run of each, by the server's clock: a busy machine makes any single one longer."""
    fill, act = SCENES[name]
    with server_of(REDIS[-1]).emptied().client() as client:
        load_scripts(client)
        scene = Scene(client, HandClock(), MANY)
        fill(scene)
        client.config_set("slowlog-max-len", 100_000)
        client.config_set("slowlog-log-slower-than", 0)
        client.slowlog_reset()
        act(scene)
        for _ in range(ROUNDS):
            scene.use()
        client.config_set("slowlog-log-slower-than", -1)
        entries = [(entry["command"].split()[:2], entry["duration"]) for entry in client.slowlog_get(100_000)]
    verbs = {load(verb).sha: verb for verb in script_calls.verbs()}
    fastest: dict[str, float] = {}
    for words, microseconds in entries:
        if words[0].upper().startswith(b"EVALSHA") and (verb := verbs.get(words[1].decode())):
            fastest[verb] = min(fastest.get(verb, math.inf), microseconds / 1_000)
    assert {"add", "claim", "settle", "sweep", "move", "cancel", "stats", "page"} <= fastest.keys()
    assert {verb: ms for verb, ms in fastest.items() if ms > LONGEST_MS} == {}


def test_names_like_a_wrong_one_are_sought_among_a_few() -> None:
    looked = 0

    def names() -> Iterator[str]:
        nonlocal looked
        for n in range(50_000):
            looked += 1
            yield f"imports{n * 7_919 % 50_000:05}"

    assert "imports39595" in alike("import39595", names())
    assert looked <= 10_001
    assert len(alike("imports0", names())) <= COMPARED


def test_schedules_like_a_wrong_one_are_sought_in_a_few_steps(redis_server: RedisServer) -> None:
    with redis_server.emptied().client() as client:
        scene = Scene(client, HandClock(), 3_000)
        add_schedules(scene)
        scene.ledger.schedule_ids(QUEUE)  # the server knows the script from then on
        client.config_resetstat()
        found = scene.ledger.schedule_ids(QUEUE)
        ran = client.info("commandstats")
        assert 0 < sum(stat["calls"] for name, stat in ran.items() if name.startswith("cmdstat_eval")) <= 4
    assert len(found) == 2_000
