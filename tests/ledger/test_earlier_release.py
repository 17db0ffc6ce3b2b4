"""Callers of an earlier commit and of this tree on one ledger: each reads and works on what the other wrote."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from duecourse.ledger.keys import keys_of
from duecourse.ledger.operations import Delivery, Move, Reply
from duecourse.ledger.store.ledger import Ledger
from duecourse.ledger.task import Ending, OnDuplicate, Status, Task
from tests.support import redis_ledger
from tests.support.earlier_store import EarlierStore
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
def earlier(layer: Path, redis_server: RedisServer) -> Iterator[EarlierStore]:
    """Its caller, who has begun the ledger."""
    with EarlierStore(layer, redis_server.url) as caller:
        assert caller("add", "first", SMALL, delay_ms=90_000) == "created"
        yield caller


@pytest.fixture
def store(redis_client: redis.Redis) -> Iterator[Ledger]:
    """This tree's caller; in the end the keys agree with one another."""
    yield Ledger(redis_client, deaths=True)
    redis_ledger.check(redis_client, SHARD)


def lease(store: Ledger, id: str, payload: str, **fields: object) -> Task:
    """One task that is added and claimed."""
    store.add([new(id, payload=payload, **fields)])
    [task] = store.claim(SHARD, 1, lease_ms=LEASE_MS).tasks
    assert task.id == id
    return task


def put_off(store: Ledger) -> None:
    """Have the completion notifications that are due wait."""
    for told in store.claim(SHARD, 9, lease_ms=LEASE_MS).tasks:
        settle(store, told, Ending.RETRY, delay_ms=70_000)


def bring(store: Ledger, payload: str) -> dict[str, Task]:
    """A task in each state and shape; those that are leased as they were claimed."""
    for how in (Ending.DONE, Ending.DROP, Ending.AGAIN, Ending.RETRY, Ending.RELEASE):
        settle(store, lease(store, how.name.lower(), payload), how, delay_ms=80_000, detail="why", state='{"s":1}')
        put_off(store)
    settle(store, lease(store, "told", payload, notify="http://a.example/told"), Ending.DONE, result='"yes"')
    put_off(store)
    log = lease(store, "log", payload)
    for n in range(25):
        settle(store, log, Ending.AGAIN, delay_ms=n)
        store.move("default", [Move("log")])
        [log] = store.claim(SHARD, 1, lease_ms=LEASE_MS).tasks
    settle(store, log, Ending.AGAIN, delay_ms=60_000)
    store.add([new("scheduled", payload=payload, delay_ms=60_000, group="g", deadline_ms=99_000, by="me")])
    store.add([new("cancelled", payload=payload, delay_ms=60_000)])
    store.cancel("default", ["cancelled"])
    for mode in (OnDuplicate.REPLACE, OnDuplicate.DEBOUNCE):
        for _ in range(2):
            store.add([new(mode.value, payload=payload, delay_ms=60_000, on_duplicate=mode)])
    leased = {id: lease(store, id, payload, group="g") for id in ("leased", "succeeded")}
    store.add([new("succeeded", payload=payload, delay_ms=60_000, on_duplicate=OnDuplicate.REPLACE)])
    return leased


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_an_earlier_release_shows_what_this_tree_wrote(store: Ledger, earlier: EarlierStore, payload: str) -> None:
    bring(store, payload)
    ids = earlier("page")
    assert {"done", "drop", "again", "log", "cancelled", "leased", "succeeded", "replace", "debounce"} <= set(ids)
    for id in ids:
        task, shown = stored_task(store, id), earlier("get", id)
        assert shown == {name: getattr(task, name) for name in shown}, id
    assert (
        earlier("group", "g")
        == [task.id for task in store.group("default", "g")]
        == ["leased", "scheduled", "succeeded"]
    )


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
@pytest.mark.parametrize(
    ("how", "settled"), [("DONE", "done"), ("AGAIN", "again"), ("RETRY", "retried"), ("DROP", "dead")]
)
def test_an_earlier_release_works_on_a_lease_that_this_tree_gave(
    store: Ledger, earlier: EarlierStore, payload: str, how: str, settled: str
) -> None:
    for id, task in bring(store, payload).items():
        assert earlier("extend", id, task.token)
        assert earlier("save", id, task.token, '{"saved":1}')
        assert stored_task(store, id).state == {"saved": 1}
        assert earlier("settle", id, task.token, how, delay_ms=50_000) == settled
        assert settle(store, task, Ending[how], delay_ms=50_000).value == settled, "sent again, to the other release"
    assert stored_task(store, "succeeded").status is Status.SCHEDULED


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_an_earlier_release_changes_what_this_tree_wrote(
    store: Ledger, earlier: EarlierStore, payload: str, force: bool
) -> None:
    bring(store, payload)
    ids = [id for id in earlier("page") if stored_task(store, id).status in LIVE]
    for id in ids:
        leased = stored_task(store, id).status is Status.LEASED
        assert earlier("move", id, force) == ("leased" if leased and not force else "ok"), id
        assert earlier("cancel", id, force) == ("leased" if leased and not force else "ok"), id
    assert earlier("replay", "drop") == "ok"
    for id, mode, reply in [("done", "keep", "created"), ("log", "replace", "created"), ("again", "reject", "created")]:
        assert earlier("add", id, SMALL, on_duplicate=mode) == reply
    assert earlier("sweep", 0) > 0
    assert earlier("cancel", "done", force=True) == "ok"


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_each_release_claims_and_settles_what_the_other_added(
    store: Ledger, earlier: EarlierStore, payload: str
) -> None:
    store.add([new(f"mine-{n}", payload=payload) for n in range(4)])
    for n in range(4):
        assert earlier("add", f"theirs-{n}", payload) == "created"
    theirs = earlier("claim", 4)
    mine = {task.id: task for task in store.claim(SHARD, 9, lease_ms=LEASE_MS).tasks}
    assert len(theirs) == len(mine) == 4
    assert all(task.payload_json == payload for task in mine.values())
    for id, token in theirs.items():
        assert store.extend(SHARD, [lease_of(stored_task(store, id))], LEASE_MS) != [0]
        assert earlier("settle", id, token, "DONE", result='"yes"') == "done"
        assert stored_task(store, id).result_json == '"yes"'
    for task in mine.values():
        assert settle(store, task, Ending.DONE).value == "done"
        assert earlier("get", task.id)["status"] == "done"


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_an_earlier_release_begins_and_settles_what_this_tree_hands_over(
    store: Ledger, earlier: EarlierStore, payload: str
) -> None:
    store.add([new("handed", kind="given", payload=payload)])
    [task] = store.claim(SHARD, 1, lease_ms=LEASE_MS, deliveries=DELIVERED).tasks
    token = earlier("begin", "handed", task.token)
    assert stored_task(store, "handed").token == token != task.token
    assert earlier("settle", "handed", token, "DONE") == "done"
    assert stored_task(store, "handed").status is Status.DONE


def test_quotas_are_true_beside_a_caller_of_an_earlier_release(
    store: Ledger, earlier: EarlierStore, redis_client: redis.Redis
) -> None:
    store.configure("default", {"tenant_max_pending": 4, "tenant_max_bytes": 4 * len(SMALL)})

    def add(id: str, **fields: object) -> Reply:
        return store.add([new(id, payload=SMALL, tenant="acme", **fields)])[0].reply

    for id in "ab":
        assert earlier("add", id, SMALL, tenant="acme") == "created"
    assert [add("c"), add("d"), add("e")] == [Reply.CREATED, Reply.CREATED, Reply.OVER_PENDING]
    claimed = earlier("claim", 9)
    assert [earlier("settle", id, claimed[id], "DONE", tenant="acme") for id in "ac"] == ["done", "done"]
    assert int(redis_client.hget(keys_of("duecourse", SHARD).meta, "bytes:acme") or 0) == 4 * len(SMALL)
    while store.sweep(SHARD, retention_ms=-1).more:
        pass
    assert [add(id, delay_ms=9_000) for id in "xyz"] == [Reply.CREATED, Reply.CREATED, Reply.OVER_PENDING]
    store.configure("default", {"tenant_max_pending": None})
    assert add("z") is Reply.OVER_BYTES
