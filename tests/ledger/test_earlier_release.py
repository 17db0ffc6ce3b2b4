"""Callers of an earlier commit and of this tree on one ledger: each reads and works on what the other wrote."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from duecourse.ledger.keys import keys_of
from duecourse.ledger.operation_types import Delivery, Move, Reply
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.queue_history import history_of
from duecourse.ledger.task import Ending, OnDuplicate, Status, Task
from tests.support import redis_ledger
from tests.support.earlier_ledger import EarlierLedger
from tests.support.ledger import LEASE_MS, SHARD, lease_of, new, settle, stored_task
from tests.support.redis_server import RedisServer
from tests.support.releases import EARLIER, layer_of, unpack_release

SMALL, LARGE = '{"n":1}', '"' + "x" * 20_000 + '"'
PAYLOADS = {"small": SMALL, "large": LARGE}
LIVE = (Status.SCHEDULED, Status.LEASED)
DELIVERED = {"given": Delivery("lambda:given", 100, LEASE_MS)}


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the earlier commit."""
    folder = tmp_path_factory.mktemp("earlier")
    unpack_release(EARLIER, folder)
    return layer_of(folder)


@pytest.fixture
def earlier(layer: Path, redis_server: RedisServer) -> Iterator[EarlierLedger]:
    """Its caller, who has begun the ledger."""
    with EarlierLedger(layer, redis_server.url) as caller:
        assert caller("add", "first", SMALL, delay_ms=90_000) == "created"
        yield caller


@pytest.fixture
def ledger(redis_client: redis.Redis) -> Iterator[Ledger]:
    """This tree's caller; in the end the keys agree with one another."""
    yield Ledger(redis_client, deaths=True)
    redis_ledger.check(redis_client, SHARD)


def lease(ledger: Ledger, id: str, payload: str, **fields: object) -> Task:
    """One task that is added and claimed."""
    ledger.add([new(id, payload=payload, **fields)])
    [task] = ledger.claim(SHARD, 1, lease_ms=LEASE_MS).tasks
    assert task.id == id
    return task


def put_off(ledger: Ledger) -> None:
    """Have the completion notifications that are due wait."""
    for told in ledger.claim(SHARD, 9, lease_ms=LEASE_MS).tasks:
        settle(ledger, told, Ending.RETRY, delay_ms=70_000)


def bring(ledger: Ledger, payload: str) -> dict[str, Task]:
    """A task in each state and shape; those that are leased as they were claimed."""
    for how in (Ending.DONE, Ending.DROP, Ending.AGAIN, Ending.RETRY, Ending.RELEASE):
        settle(ledger, lease(ledger, how.name.lower(), payload), how, delay_ms=80_000, detail="why", state='{"s":1}')
        put_off(ledger)
    settle(ledger, lease(ledger, "told", payload, notify="http://a.example/told"), Ending.DONE, result='"yes"')
    put_off(ledger)
    log = lease(ledger, "log", payload)
    for n in range(25):
        settle(ledger, log, Ending.AGAIN, delay_ms=n)
        ledger.move("default", [Move("log")])
        [log] = ledger.claim(SHARD, 1, lease_ms=LEASE_MS).tasks
    settle(ledger, log, Ending.AGAIN, delay_ms=60_000)
    ledger.add([new("scheduled", payload=payload, delay_ms=60_000, group="g", deadline_ms=99_000, by="me")])
    ledger.add([new("cancelled", payload=payload, delay_ms=60_000)])
    ledger.cancel("default", ["cancelled"])
    for mode in (OnDuplicate.REPLACE, OnDuplicate.DEBOUNCE):
        for _ in range(2):
            ledger.add([new(mode.value, payload=payload, delay_ms=60_000, on_duplicate=mode)])
    leased = {id: lease(ledger, id, payload, group="g") for id in ("leased", "succeeded")}
    ledger.add([new("succeeded", payload=payload, delay_ms=60_000, on_duplicate=OnDuplicate.REPLACE)])
    return leased


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_an_earlier_release_shows_what_this_tree_wrote(ledger: Ledger, earlier: EarlierLedger, payload: str) -> None:
    bring(ledger, payload)
    ids = earlier("page")
    assert {"done", "drop", "again", "log", "cancelled", "leased", "succeeded", "replace", "debounce"} <= set(ids)
    for id in ids:
        task, shown = stored_task(ledger, id), earlier("get", id)
        assert shown == {name: getattr(task, name) for name in shown}, id
    assert (
        earlier("group", "g")
        == [task.id for task in ledger.group("default", "g")]
        == ["leased", "scheduled", "succeeded"]
    )


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
@pytest.mark.parametrize(
    ("how", "settled"), [("DONE", "done"), ("AGAIN", "again"), ("RETRY", "retried"), ("DROP", "dead")]
)
def test_an_earlier_release_works_on_a_lease_that_this_tree_gave(
    ledger: Ledger, earlier: EarlierLedger, payload: str, how: str, settled: str
) -> None:
    for id, task in bring(ledger, payload).items():
        assert earlier("extend", id, task.token)
        assert earlier("save", id, task.token, '{"saved":1}')
        assert stored_task(ledger, id).state == {"saved": 1}
        assert earlier("settle", id, task.token, how, delay_ms=50_000) == settled
        assert settle(ledger, task, Ending[how], delay_ms=50_000).value == settled, "sent again, to the other release"
    assert stored_task(ledger, "succeeded").status is Status.SCHEDULED


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_an_earlier_release_changes_what_this_tree_wrote(
    ledger: Ledger, earlier: EarlierLedger, payload: str, force: bool
) -> None:
    bring(ledger, payload)
    ids = [id for id in earlier("page") if stored_task(ledger, id).status in LIVE]
    for id in ids:
        leased = stored_task(ledger, id).status is Status.LEASED
        assert earlier("move", id, force) == ("leased" if leased and not force else "ok"), id
        assert earlier("cancel", id, force) == ("leased" if leased and not force else "ok"), id
    assert earlier("replay", "drop") == "ok"
    for id, mode, reply in [("done", "keep", "created"), ("log", "replace", "created"), ("again", "reject", "created")]:
        assert earlier("add", id, SMALL, on_duplicate=mode) == reply
    assert earlier("sweep", 0) > 0
    assert earlier("cancel", "done", force=True) == "ok"


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_each_release_claims_and_settles_what_the_other_added(
    ledger: Ledger, earlier: EarlierLedger, payload: str
) -> None:
    ledger.add([new(f"mine-{n}", payload=payload) for n in range(4)])
    for n in range(4):
        assert earlier("add", f"theirs-{n}", payload) == "created"
    theirs = earlier("claim", 4)
    mine = {task.id: task for task in ledger.claim(SHARD, 9, lease_ms=LEASE_MS).tasks}
    assert len(theirs) == len(mine) == 4
    assert all(task.payload_json == payload for task in mine.values())
    for id, token in theirs.items():
        assert ledger.extend(SHARD, [lease_of(stored_task(ledger, id))], LEASE_MS) != [0]
        assert earlier("settle", id, token, "DONE", result='"yes"') == "done"
        assert stored_task(ledger, id).result_json == '"yes"'
    for task in mine.values():
        assert settle(ledger, task, Ending.DONE).value == "done"
        assert earlier("get", task.id)["status"] == "done"


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_an_earlier_release_begins_and_settles_what_this_tree_hands_over(
    ledger: Ledger, earlier: EarlierLedger, payload: str
) -> None:
    ledger.add([new("handed", kind="given", payload=payload)])
    [task] = ledger.claim(SHARD, 1, lease_ms=LEASE_MS, deliveries=DELIVERED).tasks
    token = earlier("begin", "handed", task.token)
    assert stored_task(ledger, "handed").token == token != task.token
    assert earlier("settle", "handed", token, "DONE") == "done"
    assert stored_task(ledger, "handed").status is Status.DONE


def test_quotas_are_true_beside_a_caller_of_an_earlier_release(
    ledger: Ledger, earlier: EarlierLedger, redis_client: redis.Redis
) -> None:
    ledger.configure("default", {"tenant_max_pending": 4, "tenant_max_bytes": 4 * len(SMALL)})

    def add(id: str, **fields: object) -> Reply:
        return ledger.add([new(id, payload=SMALL, tenant="acme", **fields)])[0].reply

    for id in "ab":
        assert earlier("add", id, SMALL, tenant="acme") == "created"
    assert [add("c"), add("d"), add("e")] == [Reply.CREATED, Reply.CREATED, Reply.OVER_PENDING]
    claimed = earlier("claim", 9)
    assert [earlier("settle", id, claimed[id], "DONE", tenant="acme") for id in "ac"] == ["done", "done"]
    assert int(redis_client.hget(keys_of("duecourse", SHARD).meta, "bytes:acme") or 0) == 4 * len(SMALL)
    while ledger.sweep(SHARD, retention_ms=-1).more:
        pass
    assert [add(id, delay_ms=9_000) for id in "xyz"] == [Reply.CREATED, Reply.CREATED, Reply.OVER_PENDING]
    ledger.configure("default", {"tenant_max_pending": None})
    assert add("z") is Reply.OVER_BYTES


def test_an_earlier_caller_leaves_the_numbers_of_later_ones_alone(earlier: EarlierLedger, ledger: Ledger) -> None:
    def done() -> int:
        return history_of("default", "90d", ledger.history_of([SHARD]), ledger.now()).total.done

    settle(ledger, lease(ledger, "mine", SMALL), Ending.DONE)
    assert done() == 1
    earlier("add", "theirs", SMALL)
    [(id, token)] = earlier("claim", 1).items()
    assert earlier("settle", id, token, "DONE") == "done"
    earlier("sweep", 0)
    assert done() == 1
    settle(ledger, lease(ledger, "mine-2", SMALL), Ending.DONE)
    assert done() == 2
    assert ledger.lateness_of([SHARD]) == [{}]  # no handler of these tasks began
