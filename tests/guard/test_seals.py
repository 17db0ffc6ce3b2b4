"""Seals: what is hidden from readers is encrypted, opens for its own task alone, and only where the key is."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duecourse import Again, Client, Task, task_handler
from duecourse.app import App
from duecourse.base.json_text import dump_json
from duecourse.base.masking import masked
from duecourse.errors import InvalidInput, InvalidSettings, SealBroken, SealUnavailable
from duecourse.guard import seals
from duecourse.guard.cipher import LocalKey
from duecourse.guard.seals import DataKey, Wrapping
from duecourse.ledger.api_query import Query
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.keys import keys_of, seals_key
from duecourse.ledger.many_tasks import TaskFilter
from duecourse.ledger.task import Done, Ending, NewTask, OnDuplicate, Status, TaskMessage
from duecourse.ledger.watched_keys import Pattern, Watch
from duecourse.running.task_event import decode_tasks
from duecourse.settings import Settings
from duecourse.tasks.http import show_task
from duecourse_local.harness.options import LOOPBACK
from tests.support.brokers import sqs_event
from tests.support.clock import HandClock
from tests.support.engine import Broker, Lambda, ample
from tests.support.functions import Context
from tests.support.http_server import ReceivedRequest, Reply, answering
from tests.support.kinds import Web, answer
from tests.support.ledger import SHARD, claim, new, settle
from tests.support.seals import LOCAL_KEY, seals_of
from tests.support.wired import Wire, wired_with

SECRET = {"url": "https://api.example.com/x?key=hidden", "headers": {"Authorization": "Bearer hidden"}, "n": [1, 2.5]}
NOTIFY = "https://hooks.example.com/in?token=hidden payload"
TARGETS = {"report": "lambda:Report", "bill": "sqs:bills"}


class Counting:
    """A key that counts how often it is asked, and may be away."""

    def __init__(self, key: Wrapping = LOCAL_KEY) -> None:
        self._key = key
        self.asked: list[str] = []
        self.away = False

    def new(self) -> DataKey:
        self._ask("new")
        return self._key.new()

    def unwrap(self, wrapped: bytes) -> bytes:
        self._ask("unwrap")
        return self._key.unwrap(wrapped)

    def _ask(self, verb: str) -> None:
        self.asked.append(verb)
        if self.away:
            raise SealUnavailable("KMS is away")


@pytest.fixture
def invoker() -> Lambda:
    return Lambda()


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def worked() -> list[Task]:
    """The tasks of the kind `work`, as its handler got them."""
    return []


@pytest.fixture
def app(ledger: EmbeddedLedger, invoker: Lambda, broker: Broker, worked: list[Task]) -> Iterator[App]:
    def work(task: Task) -> Done:
        worked.append(task)
        return Done()

    parts = {"invoker": invoker, "brokers": {"sqs": broker}, "kinds": {"poll": work, "webhook": work}}
    with wired_with(Settings(targets=TARGETS), ledger=ledger, **parts) as app:
        yield app


def add(app: App, id: str = "a", kind: str = "poll", **fields: Any) -> Task:
    task = NewTask(id, kind, dump_json(SECRET), **fields)
    app.ledger.add(app.seals.sealed([task]))
    kept = app.ledger.get(task.queue, id, task.tenant)
    assert kept
    return kept


def put(app: App, field: str, value: str | bytes) -> None:
    """Write into the ledger's own hash of records, as somebody with Redis's password may."""
    app.ledger.client.hset(keys_of("duecourse", SHARD).tasks, field, value)  # type: ignore[attr-defined]


def test_a_ledger_keeps_what_is_shown_and_the_worker_gets_what_was_sent(app: App, worked: list[Task]) -> None:
    kept = add(app, notify=NOTIFY)
    assert "hidden" not in repr(kept)
    assert kept.payload == masked(SECRET) == show_task(kept)["payload"]
    assert show_task(kept)["notify_done"] == {
        "url": "https://hooks.example.com/in?token=•••",
        "include": ["payload"],
    }
    assert app.drainer.drain([SHARD], ample).done == 1
    assert [task.payload for task in worked] == [SECRET]
    assert worked[0].payload_json == dump_json(SECRET), "to the byte"


@pytest.mark.parametrize("kind", ["report", "bill"])
def test_a_function_and_a_queue_get_a_task_as_it_was_given(
    app: App, invoker: Lambda, broker: Broker, kind: str
) -> None:
    add(app, kind=kind)
    app.drainer.drain([SHARD], ample)
    handed = [task for _, event in invoker.sent for task in decode_tasks(event)]
    got = [task.payload for task in handed] + [
        one["tasks"][0]["payload"] for queue in broker.queues.values() for one in queue.values()
    ]
    assert got == [SECRET]


WORD = st.text("abcxyz019-._~%", min_size=1, max_size=8)
NAME = (
    st.sampled_from(["token", "url", "headers", "Authorization", "n", "api_key", "seal", "shown", "X-Pin", "HEADERS"])
    | WORD
)
TEXT = st.sampled_from(
    [
        "https://u:p@h.example/a?b=c&d",
        "a=b&token=c",
        '{"password": "x"}',
        "•••",
        "",
        " {",
        "sealed:a:b",
        "see sk_live_0123456789ab",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT | WORD,
    lambda c: st.lists(c, max_size=3) | st.dictionaries(NAME, c, max_size=3),
)


@pytest.mark.slow
@given(JSON)
def test_what_is_shown_and_what_is_sealed_are_two_halves_of_one_payload(value: Any) -> None:
    text = dump_json(value)
    hidden = seals.hidden_in(text)
    shown = masked(value)
    assert (hidden is None) == (shown == value)
    if hidden:
        assert hidden.shown == shown
        sealed = seals.sealed_payload("s", hidden.shown)
        found = seals.read_payload(sealed)
        assert found
        values = json.loads(dump_json(hidden.values))
        assert dump_json(seals.restore_hidden(json.loads(found.shown), values)) == text


def test_a_payload_that_looks_like_a_sealed_one_is_a_payload(app: App, worked: list[Task]) -> None:
    kept = add(app)
    forged = {"seal": json.loads(kept.payload_json)["seal"], "shown": {"url": "https://evil.example"}}
    app.ledger.add(app.seals.sealed([NewTask("b", "poll", dump_json(forged))]))
    app.drainer.drain([SHARD], ample)
    assert [task.payload for task in worked if task.id == "b"] == [forged]


def test_a_payload_too_deep_to_be_gone_through_is_sealed_whole(app: App, worked: list[Task]) -> None:
    text = "[" * 200 + '"https://a:hidden@b.example"' + "]" * 200
    app.ledger.add(app.seals.sealed([NewTask("deep", "poll", text)]))
    kept = app.ledger.get("default", "deep")
    assert kept
    assert kept.payload == "•••"
    app.drainer.drain([SHARD], ample)
    assert worked[0].payload_json == text


@pytest.mark.parametrize("change", ["copied", "to_a_tenant", "shown", "damaged", "no_key", "not_json"])
def test_a_seal_that_does_not_open_ends_its_task_dead_and_says_why(app: App, worked: list[Task], change: str) -> None:
    kept = add(app)
    envelope = json.loads(kept.payload_json)
    key, _, body = envelope["seal"].partition(".")
    if change == "shown":
        envelope["shown"]["url"] = "https://evil.example/x?key=•••"
    if change == "damaged":
        envelope["seal"] = f"{key}.{body[:-6]}AAAAAA"
    if change == "no_key":
        envelope["seal"] = f"0123456789abcdef.{body}"
    text = " {" if change == "not_json" else " " + dump_json(envelope)
    id = "b" if change == "copied" else "a"
    # Past the seals, as somebody with Redis's password may.
    tenant = "acme" if change == "to_a_tenant" else "-"
    app.ledger.add([NewTask(id, "poll", text, tenant=tenant, on_duplicate=OnDuplicate.REPLACE)])
    if change in {"copied", "to_a_tenant"}:
        app.ledger.cancel("default", ["a"])
    drained = app.drainer.drain([SHARD], ample)
    assert (drained.dead, worked) == (1, [])
    dead = app.ledger.get("default", id, tenant)
    assert dead
    assert (dead.status, dead.attempt) == (Status.DEAD, 1)
    assert "the sealed credentials of this task cannot be opened" in dead.error


def test_an_untouched_copy_of_a_record_opens(app: App, worked: list[Task]) -> None:
    kept = add(app)
    app.ledger.add([NewTask("a", "poll", kept.payload_json, on_duplicate=OnDuplicate.REPLACE)])
    app.drainer.drain([SHARD], ample)
    assert [task.payload for task in worked] == [SECRET]


@task_handler
def billing(task: Task) -> Again:
    """A function that reads a broker's queue, and is to get its task again."""
    assert task.payload == SECRET
    return Again(after=60)


def test_a_task_that_a_broker_delivered_is_sealed_when_it_is_to_run_again(
    app: App, ledger: EmbeddedLedger, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    add(app, kind="bill")
    app.drainer.drain([SHARD], ample)
    [message] = broker.queues["bills"].values()
    event = sqs_event(json.dumps(message))
    assert billing.on(app)(event, Context()) == {"batchItemFailures": []}
    kept = ledger.get("default", "a")
    assert kept
    assert kept.status is Status.SCHEDULED
    assert "hidden" not in repr(kept)
    with wired_with(ledger=ledger, wrapping=None) as keyless:
        assert billing.on(keyless)(event, Context()) == {"batchItemFailures": [{"itemIdentifier": "m-0"}]}
    assert "the ledger did not accept it back: payload.url: holds a credential" in caplog.text


def test_a_handed_over_task_whose_seal_does_not_open_is_dead_too(app: App, invoker: Lambda) -> None:
    kept = add(app, kind="report")
    app.ledger.cancel("default", ["a"])
    app.ledger.add([NewTask("b", "report", kept.payload_json)])
    assert app.drainer.drain([SHARD], ample).dead == 1
    assert invoker.sent == []


@pytest.mark.parametrize("kind", ["poll", "report"])
def test_a_key_that_is_away_delays_a_task_and_spends_no_attempt(
    ledger: EmbeddedLedger, clock: HandClock, worked: list[Task], invoker: Lambda, kind: str
) -> None:
    key = Counting()
    kinds = {"poll": worked.append}
    with wired_with(
        Settings(targets=TARGETS), ledger=ledger, kinds=kinds, invoker=invoker, wrapping=Counting()
    ) as adding:
        add(adding, kind=kind)
    with wired_with(Settings(targets=TARGETS), ledger=ledger, kinds=kinds, invoker=invoker, wrapping=key) as app:
        key.away = True
        for _ in range(12):
            assert app.drainer.drain([SHARD], ample).released == 1
            clock.advance(60_000)
        waiting = ledger.get("default", "a")
        assert waiting
        assert (waiting.attempt, waiting.status) == (1, Status.SCHEDULED)
        assert "KMS is away" in str(waiting.log)
        key.away = False
        app.drainer.drain([SHARD], ample)
    assert len(worked) + len(invoker.sent) == 1


def test_a_process_without_a_key_lets_sealed_tasks_wait(ledger: EmbeddedLedger, app: App, worked: list[Task]) -> None:
    add(app)
    with wired_with(ledger=ledger, wrapping=None, kinds={"poll": worked.append}) as keyless:
        assert keyless.drainer.drain([SHARD], ample).released == 1
    waiting = ledger.get("default", "a")
    assert waiting
    assert "DUECOURSE_SEAL_KEY is not set here" in str(waiting.log)
    assert worked == []


def test_an_add_while_the_key_is_away_adds_nothing(ledger: EmbeddedLedger) -> None:
    key = Counting()
    key.away = True
    with wired_with(ledger=ledger, wrapping=key) as app, pytest.raises(SealUnavailable, match="KMS is away"):
        add(app)
    assert ledger.get("default", "a") is None


def test_a_data_key_is_made_once_and_unwrapped_once_a_process(ledger: EmbeddedLedger) -> None:
    first, second = Counting(), Counting()
    with wired_with(ledger=ledger, wrapping=first, kinds={"poll": lambda _: None}) as app:
        for number in range(5):
            add(app, f"a{number}")
    with wired_with(ledger=ledger, wrapping=second, kinds={"poll": lambda _: None}) as app:
        assert app.drainer.drain([SHARD], ample).done == 5
        add(app, "b")
    assert (first.asked, second.asked) == (["new"], ["unwrap"])


def test_a_task_without_a_credential_asks_neither_the_key_nor_the_ledger(ledger: EmbeddedLedger) -> None:
    key = Counting()
    plain = dump_json({"url": "https://example.com/hooks/orders", "body": {"order": 7}})
    with wired_with(ledger=ledger, wrapping=key) as app:
        app.ledger.add(app.seals.sealed([NewTask("a", "webhook", plain, notify="https://example.com/done")]))
    kept = ledger.get("default", "a")
    assert kept
    assert (kept.payload_json, kept.notify, key.asked) == (plain, "https://example.com/done", [])
    assert ledger.seal_keys().current() is None


def test_after_a_rotation_new_tasks_have_another_key_and_old_ones_still_open(app: App, worked: list[Task]) -> None:
    def key_of(task: Task) -> str:
        return str(json.loads(task.payload_json)["seal"].partition(".")[0])

    before = key_of(add(app, "old"))
    made = app.seals.rotate()
    assert key_of(add(app, "new")) == made != before
    assert app.drainer.drain([SHARD], ample).done == 2
    assert [task.payload for task in worked] == [SECRET] * 2


def test_another_process_seals_with_the_newer_key_at_its_next_add(ledger: EmbeddedLedger) -> None:
    one, other = seals_of(ledger), seals_of(ledger)
    task = NewTask("a", "poll", dump_json(SECRET))
    one.sealed([task])
    made = other.rotate()
    [sealed] = one.sealed([task])
    assert json.loads(sealed.payload)["seal"].startswith(f"{made}.")


def test_a_key_that_a_failover_lost_is_put_back_by_who_knows_it(
    app: App, ledger: EmbeddedLedger, worked: list[Task]
) -> None:
    add(app, "before")
    lost = ledger.client.delete(seals_key("duecourse"))
    assert lost == 1
    add(app, "after")
    with wired_with(ledger=ledger, kinds={"poll": worked.append}) as other:
        assert other.drainer.drain([SHARD], ample).done == 2
    assert [task.payload for task in worked] == [SECRET] * 2


def test_a_ledger_whose_data_key_is_of_another_key_takes_no_credentials_until_it_is_rotated(
    ledger: EmbeddedLedger, app: App
) -> None:
    add(app)
    kinds = {"poll": lambda _: None}
    with wired_with(ledger=ledger, wrapping=LocalKey(bytes(32), "duecourse"), kinds=kinds) as other:
        with pytest.raises(SealUnavailable, match="duecourse rotate"):
            add(other, "b")
        other.seals.rotate()
        add(other, "b")
        drained = other.drainer.drain([SHARD], ample)
    assert (drained.done, drained.dead) == (1, 1), "the key of the one before is not here"


def test_a_data_key_opens_for_its_own_namespace_alone() -> None:
    made = LocalKey(bytes(32), "one").new()
    with pytest.raises(SealBroken):
        LocalKey(bytes(32), "two").unwrap(made.wrapped)


def test_a_client_without_a_key_names_each_credential_and_the_way_without(ledger: EmbeddedLedger, wire: Wire) -> None:
    wire(Settings(targets=TARGETS), ledger=ledger, wrapping=None)
    client = Client.from_env()
    with pytest.raises(InvalidInput) as caught:
        client.add(kind="report", payload=SECRET, notify_done={"url": "https://a.example/in?token=hidden"})
    fields = {one.field: one.problem for one in caught.value.problems}
    assert fields.keys() == {"payload.url", "payload.headers.Authorization"}
    assert all("`auth`" in problem for problem in fields.values())
    assert "hidden" not in str(caught.value)
    with pytest.raises(InvalidInput, match=r"notify_done\.url: .*`auth`"):
        client.add(kind="report", payload={}, notify_done={"url": "https://a.example/in?token=hidden"})
    with pytest.raises(InvalidInput, match=r"tasks\.1\.payload\.headers\.Authorization"):
        client.add_many([{"kind": "report", "payload": {}}, {"kind": "report", "payload": SECRET}])
    with pytest.raises(InvalidInput, match=r"(?<!payload\.)headers\.X-Api-Key"):
        client.query(url="https://a.example", interval=1, until="a", headers={"X-Api-Key": "hidden"})
    meeting: dict[str, Any] = {
        "subject": "s",
        "starts_at": "2099-01-01T00:00:00Z",
        "remind_before": ["PT5M"],
        "recipients": [{"name": "Ada", "webhook": "https://a.example/?key=hidden"}],
    }
    with pytest.raises(InvalidInput, match=r"recipients\.0"):
        client.reminders.add(**meeting)
    with pytest.raises(InvalidInput, match=r"data\.password"):
        client.reminders.add(
            **meeting | {"recipients": [{"name": "A", "email": "a@b.example"}], "data": {"password": "x"}}
        )
    assert ledger.shards() == []
    client.add(kind="report", payload={"url": "https://a.example/in"})


def test_a_name_in_auth_needs_no_key_and_is_in_no_seal(ledger: EmbeddedLedger, wire: Wire) -> None:
    call = {"url": "https://a.example/in", "auth": "api-token"}
    with wired_with(Settings(targets=TARGETS), ledger=ledger, wrapping=None, http=Web(answer(body={}))):
        client = Client.from_env()
        client.add(kind="webhook", payload=call, id="a", notify_done=call)
        client.query(**call, interval=1, until="a")
        client.reminders.add(
            subject="s",
            starts_at="2099-01-01T00:00:00Z",
            remind_before=["PT5M"],
            recipients=[{"webhook": "https://a.example", "auth": "api-token"}],
        )
        with pytest.raises(InvalidInput, match=r"payload\.auth: .*`auth`"):
            client.add(kind="report", payload={"auth": "hidden"})
    kept = ledger.get("default", "a")
    assert kept
    assert (json.loads(kept.payload_json), kept.notify) == (call, "https://a.example/in auth=api-token")
    wire(Settings(targets=TARGETS), ledger=ledger)
    assert Client.from_env().add(kind="webhook", payload=call, id="b").task.payload_json == kept.payload_json


def test_messages_without_a_key_are_rejected_one_by_one(ledger: EmbeddedLedger) -> None:
    with wired_with(Settings(targets=TARGETS), ledger=ledger, wrapping=None) as app:
        tasks = {"good": new("good", kind="report"), "bad": NewTask("bad", "report", dump_json(SECRET))}
        added = app.tasks.add_messages({name: TaskMessage(task, False) for name, task in tasks.items()})
    assert added.added == 1
    assert "payload.url" in added.rejected["bad"]


def test_watched_keys_with_credentials_need_a_key(ledger: EmbeddedLedger) -> None:
    watch = Watch(Pattern("a-{x}"), "webhook", SECRET, 1_000, "default")
    given = Settings(watch=[watch])
    with (
        wired_with(given, ledger=ledger, wrapping=None) as app,
        pytest.raises(InvalidSettings, match=r"DUECOURSE_WATCH\.0\.payload\.headers\.Authorization"),
    ):
        _ = app.watches
    with wired_with(given, ledger=ledger) as app:
        _ = app.watches


def test_a_ledger_of_before_is_read_and_worked(app: App, ledger: EmbeddedLedger, worked: list[Task]) -> None:
    ledger.add([NewTask("a", "poll", dump_json(SECRET))])  # in clear, as every version before this one
    app.drainer.drain([SHARD], ample)
    assert [task.payload for task in worked] == [SECRET]


def test_an_error_that_quotes_a_credential_is_kept_and_logged_without_it(
    ledger: EmbeddedLedger, caplog: pytest.LogCaptureFixture
) -> None:
    def work(task: Task) -> None:
        raise ValueError("the API said: no user for " + task.payload["headers"]["Authorization"].split()[1])

    with wired_with(ledger=ledger, kinds={"poll": work}) as app:
        payload = {"url": "https://a.example", "headers": {"Authorization": "Bearer 8c1d-77aa-of-mine"}}
        app.ledger.add(app.seals.sealed([NewTask("a", "poll", dump_json(payload))]))
        app.drainer.drain([SHARD], ample)
    kept = ledger.get("default", "a")
    assert kept
    assert "no user for •••" in kept.error
    assert "8c1d" not in caplog.text + repr(kept)


def test_the_id_of_a_query_is_the_same_in_each_process_and_tells_nothing_of_its_credentials(
    ledger: EmbeddedLedger,
) -> None:
    asked = Query({"url": "https://a.example/x", "headers": {"X-Api-Key": "hidden"}, "until": "a"}, 0)
    ids = {asked._replace(digest=seals_of(ledger).digest()).id for _ in range(3)}
    assert len(ids) == 1
    assert asked.id not in ids, "whoever has the address could try passwords one by one"
    assert asked._replace(digest=seals_of(EmbeddedLedger()).digest()).id not in ids


def test_a_query_with_credentials_is_asked_once_and_found_by_its_id(ledger: EmbeddedLedger) -> None:
    calls: list[Any] = []

    def reply(asked: ReceivedRequest) -> Reply:
        calls.append(asked)
        return Reply(200, b'{"ready": true, "token": "of the answer"}')

    with answering(reply) as server, wired_with(Settings(egress_allow=LOOPBACK), ledger=ledger):
        client = Client.from_env()
        query = {"url": f"{server.url}/x?key=hidden", "interval": 5, "until": "ready", "max_age": 3600}
        one, two = (client.query(**query, headers={"X-Api-Key": "hidden"}) for _ in range(2))
        fresh = client.query(**query | {"max_age": 0}, headers={"X-Api-Key": "hidden"})
        other = client.query(**query, headers={"X-Api-Key": "another"})
    assert (one.id, one.known) == (two.id, two.known)
    assert one.known
    assert one.known.data == {"ready": True, "token": "of the answer"}, "a result is what was asked for"
    assert fresh.id == one.id != other.id
    assert [asked.headers["x-api-key"] for asked in calls] == ["hidden", "hidden", "another"]


def test_a_notification_outlives_its_task_and_is_sent_where_it_was_to_go(ledger: EmbeddedLedger) -> None:
    called: list[Any] = []
    with wired_with(ledger=ledger, http=None, kinds={"poll": lambda _: None, "task.ended": called.append}) as app:
        add(app, notify=NOTIFY)
        settle(ledger, *claim(ledger), Ending.DONE)
        (pending,) = [task for task in app.tasks.page("default", TaskFilter(), None, 10).tasks if "~" in task.id]
        assert "hidden" not in repr(pending)
        assert show_task(pending)["payload"]["ended"]["url"] == "https://hooks.example.com/in?token=•••"
        app.drainer.drain([SHARD], ample)
    assert called[0].payload["ended"]["url"] == "https://hooks.example.com/in?token=hidden"
