"""Callers of 0.1.0 and of this tree on one ledger, not upgraded: each reads and works on what the other wrote."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from duecourse.adapters.redis.keys import keys_of
from duecourse.adapters.redis.store import RedisStore
from duecourse.adapters.redis.upgrade import Upgrade
from duecourse.domain.outcomes import Ending
from duecourse.domain.task import OnDuplicate, Status, Task
from duecourse.engine.seals import sealing
from duecourse.errors import StoreMisused
from duecourse.ports.leases import Delivery
from duecourse.ports.tasks import Move, Reply
from tests.support import redis_ledger
from tests.support.earlier_store import Earlier
from tests.support.ledger import LEASE_MS, SHARD, lease_of, new, settle, standing
from tests.support.redis_server import RedisServer
from tests.support.releases import FIRST, layer_of, unpack_release
from tests.support.seals import seals_of

SMALL, LARGE = '{"n":1}', '"' + "x" * 20_000 + '"'
PAYLOADS = {"small": SMALL, "large": LARGE}
LIVE = (Status.SCHEDULED, Status.LEASED)
DELIVERED = {"work": Delivery("lambda:work", 100, LEASE_MS)}
SHOWN_ALIKE = ["kind", "status", "group", "payload_json", "state_json", "result_json", "due_at", "created_at"]
SHOWN_ALIKE += [
    "deadline_at",
    "generation",
    "run",
    "attempt",
    "token",
    "claimed_at",
    "lease_expires_at",
    "by",
    "notify",
]


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of 0.1.0."""
    folder = tmp_path_factory.mktemp("first")
    unpack_release(FIRST, folder)
    return layer_of(folder)


@pytest.fixture
def earlier(layer: Path, redis_server: RedisServer) -> Iterator[Earlier]:
    """Its caller, who has begun the ledger."""
    with Earlier(layer, redis_server.url) as caller:
        assert caller("add", "first", SMALL, delay_ms=90_000) == "created"
        yield caller


@pytest.fixture
def store(redis_client: redis.Redis) -> Iterator[RedisStore]:
    """This tree's caller; in the end the keys agree with one another."""
    yield RedisStore(redis_client, deaths=True)
    redis_ledger.check(redis_client, SHARD)


def lease(store: RedisStore, id: str, payload: str, **fields: object) -> Task:
    """One task, handed over where that is another's to work: under a lease that both know."""
    store.add([new(id, payload=payload, **fields)])
    [task] = store.claim(SHARD, 1, lease_ms=LEASE_MS, deliveries=DELIVERED).tasks
    assert task.id == id
    return task


def put_off(store: RedisStore) -> None:
    """Have the completion notifications that are due wait."""
    for told in store.claim(SHARD, 9, lease_ms=LEASE_MS).tasks:
        settle(store, told, Ending.RETRY, delay_ms=70_000)


def bring(store: RedisStore, payload: str) -> dict[str, Task]:
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
def test_the_first_release_shows_what_this_tree_wrote(store: RedisStore, earlier: Earlier, payload: str) -> None:
    bring(store, payload)
    ids = earlier("page")
    assert {"done", "drop", "again", "log", "cancelled", "leased", "succeeded", "replace", "debounce"} <= set(ids)
    for id in ids:
        task, shown = standing(store, id), earlier("get", id)
        assert {name: shown[name] for name in SHOWN_ALIKE} == {name: getattr(task, name) for name in SHOWN_ALIKE}, id
    assert (
        earlier("group", "g")
        == [task.id for task in store.group("default", "g")]
        == ["leased", "scheduled", "succeeded"]
    )


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
@pytest.mark.parametrize(
    ("how", "settled"), [("DONE", "done"), ("AGAIN", "again"), ("RETRY", "retried"), ("DROP", "dead")]
)
def test_the_first_release_works_on_a_lease_that_this_tree_gave(
    store: RedisStore, earlier: Earlier, payload: str, how: str, settled: str
) -> None:
    for id, task in bring(store, payload).items():
        assert earlier("extend", id, task.token)
        assert earlier("save", id, task.token, '{"saved":1}')
        assert standing(store, id).state == {"saved": 1}
        assert earlier("settle", id, task.token, how, delay_ms=50_000) == settled
        assert settle(store, task, Ending[how], delay_ms=50_000).value == settled, "sent again, to the other release"
    assert standing(store, "succeeded").status is Status.SCHEDULED


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_the_first_release_changes_what_this_tree_wrote(
    store: RedisStore, earlier: Earlier, payload: str, force: bool
) -> None:
    bring(store, payload)
    ids = [id for id in earlier("page") if standing(store, id).status in LIVE]
    for id in ids:
        leased = standing(store, id).status is Status.LEASED
        assert earlier("move", id, force) == ("leased" if leased and not force else "ok"), id
        assert earlier("cancel", id, force) == ("leased" if leased and not force else "ok"), id
    assert earlier("replay", "drop") == "ok"
    for id, mode, reply in [("done", "keep", "created"), ("log", "replace", "created"), ("again", "reject", "created")]:
        assert earlier("add", id, SMALL, on_duplicate=mode) == reply
    assert earlier("sweep", 0) > 0
    assert earlier("cancel", "done", force=True) == "ok"


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_each_release_claims_and_settles_what_the_other_added(
    store: RedisStore, earlier: Earlier, payload: str
) -> None:
    store.add([new(f"mine-{n}", payload=payload) for n in range(4)])
    for n in range(4):
        assert earlier("add", f"theirs-{n}", payload) == "created"
    theirs = earlier("claim", 4)
    mine = {task.id: task for task in store.claim(SHARD, 9, lease_ms=LEASE_MS).tasks}
    assert len(theirs) == len(mine) == 4
    assert all(task.payload_json == payload for task in mine.values())
    for id, token in theirs.items():
        assert store.extend(SHARD, [lease_of(standing(store, id))], LEASE_MS) != [0]
        assert earlier("settle", id, token, "DONE", result='"yes"') == "done"
        assert standing(store, id).result_json == '"yes"'
    for task in mine.values():
        assert settle(store, task, Ending.DONE).value == "done"
        assert earlier("get", task.id)["status"] == "done"


def test_an_upgrade_sees_a_caller_of_the_first_release(earlier: Earlier, redis_client: redis.Redis) -> None:
    for verb in (("add", "another", SMALL), ("claim", 1)):
        with pytest.raises(StoreMisused, match="A caller of an earlier version"):
            Upgrade(redis_client, "duecourse", lambda _line, verb=verb: earlier(*verb)).run(0)
    assert Upgrade(redis_client, "duecourse", print).run(0).raised == 1


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_the_first_release_loses_nothing_of_a_ledger_that_was_upgraded(
    store: RedisStore, earlier: Earlier, redis_client: redis.Redis, payload: str
) -> None:
    """As after a rollback: what it cannot read waits for this tree, or for its answer to be asked again."""
    leased = bring(store, payload)
    store.add([new("due", payload=payload)])
    live = {id: task for id in earlier("page") if (task := standing(store, id)).status in LIVE}
    Upgrade(redis_client, "duecourse", print).run(0)
    assert earlier("claim", 9) == {}
    for id in live:
        assert earlier("move", id, force=True) == earlier("cancel", id, force=True) == "absent"
        for verb in (("get", id), ("add", id, SMALL)):
            with pytest.raises(AssertionError, match=f"the record of -/{id} cannot be read"):
                earlier(*verb)
    for id, task in leased.items():
        assert not earlier("extend", id, task.token)
        assert not earlier("save", id, task.token, "1")
        assert earlier("settle", id, task.token, "DONE") == "stale"
    assert earlier("add", "theirs", payload) == "created"
    assert earlier("settle", "theirs", earlier("claim", 1)["theirs"], "DONE") == "done"
    assert earlier("sweep", 0) > 0
    assert {id: standing(store, id) for id in live} == live
    Upgrade(redis_client, "duecourse", print).run(0)  # which deletes payloads whose records that sweep deleted
    for id, task in leased.items():
        assert (id, settle(store, task, Ending.DONE).value) == (id, "done")
    assert store.claim(SHARD, 9, lease_ms=LEASE_MS).tasks == [], "due tasks are put off for a minute"
    store.move("default", [Move("due")])
    [due] = store.claim(SHARD, 9, lease_ms=LEASE_MS).tasks
    assert (due.id, due.payload_json, settle(store, due, Ending.DONE).value) == ("due", payload, "done")


SECRET = '{"url":"https://a.example/?key=hidden","headers":{"Authorization":"Bearer hidden"}}'


def test_the_first_release_never_gets_a_seal_to_send(
    store: RedisStore, earlier: Earlier, redis_client: redis.Redis
) -> None:
    adds = sealing(store, seals_of(store))
    notify = "https://b.example/?key=hidden"
    adds.add([new("before", kind="work", payload=SECRET, notify=notify)])
    adds.add([new("elsewhere", queue="another", payload=SECRET)])
    assert (earlier("get", "before")["payload_json"], earlier("get", "before")["notify"]) == (SECRET, notify)
    assert store.get("another", "elsewhere").payload_json == SECRET  # type: ignore[union-attr]
    Upgrade(redis_client, "duecourse", lambda _: None).run(0)
    adds.add([new("after", kind="work", payload=SECRET, notify=notify, delay_ms=60_000)])
    kept = standing(store, "after")
    assert "hidden" not in repr(kept)
    assert seals_of(store).opened(kept).payload_json == SECRET
    assert seals_of(store).opened(standing(store, "before")).payload_json == SECRET


def test_quotas_are_true_beside_a_caller_of_the_first_release(
    store: RedisStore, earlier: Earlier, redis_client: redis.Redis
) -> None:
    """Pending tasks are counted by both; bytes by this tree alone, and so not before the shard is its own."""
    store.configure("default", {"tenant_max_pending": 4, "tenant_max_bytes": 4 * len(SMALL)})

    def add(id: str, **fields: object) -> Reply:
        return store.add([new(id, payload=SMALL, tenant="acme", **fields)])[0].reply

    for id in "ab":
        assert earlier("add", id, SMALL, tenant="acme") == "created"
    assert [add("c"), add("d"), add("e")] == [Reply.CREATED, Reply.CREATED, Reply.OVER_PENDING]
    claimed = earlier("claim", 9) | earlier("claim", 9)
    assert [earlier("settle", id, claimed[id], "DONE", tenant="acme") for id in "ac"] == ["done", "done"]
    meta = keys_of("duecourse", SHARD).meta
    assert not redis_client.hexists(meta, "bytes:acme")
    assert Upgrade(redis_client, "duecourse", print).run(0).raised == 1
    while store.sweep(SHARD, retention_ms=0).more:
        pass
    assert int(redis_client.hget(meta, "bytes:acme") or 0) == 2 * len(SMALL)
    assert [add(id, delay_ms=9_000) for id in "xyz"] == [Reply.CREATED, Reply.CREATED, Reply.OVER_PENDING]
    store.configure("default", {"tenant_max_pending": None})
    assert add("z") is Reply.OVER_BYTES
