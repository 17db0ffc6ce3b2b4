"""A tenant that fills Redis, or makes queues, or stops those of others: over HTTP, with a Redis, as deployed."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from duecourse.api.authorization import Role
from duecourse_local.harness.aws.authorizer import Auth
from duecourse_local.harness.options import Options, Precision
from tests.support.authenticated_stack import RULES, AuthenticatedStack
from tests.support.callers import Caller
from tests.support.emulator import local_stack
from tests.support.matrix import LENGTHY, MATRIX, in_turn
from tests.support.requests import MEETING, WEBHOOK, Answer

pytestmark = LENGTHY

HOSTILE, VICTIM = Caller("hostile", (Role.CALLER, Role.WORKER)), Caller("victim", (Role.CALLER,))
BOUNDED = Caller("bounded", (Role.CALLER,))
"""A tenant with quotas of the deployment by its name."""
OPERATOR = Caller("", (Role.OPERATOR,))
SIZE = 100_000
QUOTAS = {"tenant_max_pending": 1_000, "tenant_max_bytes": 10 * SIZE}


def noise(size: int) -> str:
    """Text that no compression makes small."""
    return "".join(random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=size))


class Scene:
    """A stack that asks for tokens, and its Redis."""

    def __init__(self, stage: AuthenticatedStack, client: redis.Redis) -> None:
        self.stage = stage
        self.client = client
        self.sent = dict[str, Any]()

    def ask(self, who: Caller, method: str, path: str, body: Any = None) -> Answer:
        return self.stage.call_as(who, method, path, body)

    def add(self, who: Caller, id: str, size: int = 1) -> Answer:
        payload = {**WEBHOOK["payload"], "body": "x" * size}
        return self.ask(who, "POST", "/tasks", WEBHOOK | {"id": id, "payload": payload})

    def keyed(self, who: Caller, key: str, task: Any) -> Answer:
        """Adds a task with a key; `sent` has what was sent with each."""
        self.sent.setdefault(key, task)
        return self.stage.call_as(who, "POST", "/tasks", task, idempotency_key=key)

    def used(self) -> int:
        """Bytes that Redis has in use."""
        return int(self.client.info("memory")["used_memory"])

    def queues(self, who: Caller) -> list[str]:
        return [queue["queue"] for queue in self.ask(who, "GET", "/queues").body["queues"]]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("state")
    options = Options(
        auth=Auth.JWT,
        tick=0,
        precision=Precision.TICK,
        parameters={},
        state=folder,
        environment={
            "DUECOURSE_TENANT_FROM": RULES[Auth.JWT],
            "DUECOURSE_TENANT_MAX_QUEUES": "5",
            "DUECOURSE_TENANT_QUOTAS": json.dumps({BOUNDED.tenant: QUOTAS}),
        },
    )
    with local_stack(options) as running, redis.Redis.from_url(running.store) as client:
        yield Scene(AuthenticatedStack(Auth.JWT, running.api, Path(folder), ""), client)


@pytest.fixture
def scene(stack: Scene) -> Scene:
    """The same stack for each test, empty."""
    stack.client.flushall()
    return stack


@pytest.mark.parametrize("many", in_turn(20, 300))
def test_no_queue_is_made_by_being_set_looked_at_or_replayed(scene: Scene, many: int) -> None:
    for n in range(many):
        refused = scene.ask(OPERATOR, "PATCH", f"/queues/any-{n}", {"paused": True})
        assert (refused.status, refused.body["type"]) == (404, "urn:duecourse:problem:queue-not-found")
    for path in ("/queues/any", "/tasks/a?queue=any", "/tasks?queue=any"):
        scene.ask(HOSTILE, "GET", path)
    scene.ask(HOSTILE, "POST", "/queues/any/dead/replay", {})
    assert scene.queues(OPERATOR) == []
    assert scene.client.dbsize() == 0


def test_a_tenant_that_fills_redis_is_stopped_by_its_quotas_and_no_other_is(scene: Scene) -> None:
    assert scene.ask(OPERATOR, "PATCH", "/queues/default", QUOTAS | {"create": True}).status == 200
    before = scene.client.info("memory")["used_memory"]
    answers = [scene.add(HOSTILE, f"large-{n}", SIZE) for n in range(50)]
    assert [one.status for one in answers] == [201] * 9 + [429] * 41, "each payload has a few bytes more than its text"
    assert scene.client.info("memory")["used_memory"] < before + 20 * SIZE
    refused = answers[-1]
    assert (refused.body["quota"], refused.headers["retry-after"]) == ("tenant_max_bytes", "10")
    assert scene.add(VICTIM, "large", SIZE).status == 201


def test_a_tenant_that_adds_without_end_is_slowed_down_and_no_other_is(scene: Scene) -> None:
    assert scene.ask(OPERATOR, "PATCH", "/queues/default", {"tenant_adds_per_minute": 6, "create": True}).status == 200
    answers = [scene.add(HOSTILE, f"small-{n}") for n in range(8)]
    assert [one.status for one in answers] == [201] * 6 + [429] * 2
    refused = answers[-1]
    assert refused.body["quota"] == "tenant_adds_per_minute"
    assert 1 <= int(refused.headers["retry-after"]) <= 10
    assert [scene.add(VICTIM, f"small-{n}").status for n in range(6)] == [201] * 6


def test_no_tenant_stops_the_queues_of_others_or_sees_them_or_the_hosts_that_they_call(scene: Scene) -> None:
    asked = {"url": "https://victim-s-supplier.example/report", "interval": "PT1H", "until": "`true`", "timeout": 1}
    scene.ask(VICTIM, "POST", "/queries", asked)
    scene.add(VICTIM, "a")
    scene.ask(VICTIM, "POST", "/tasks", WEBHOOK | {"queue": "victim-s-own"})
    assert scene.queues(VICTIM) == ["default", "query:victim-s-supplier.example", "victim-s-own"]
    assert scene.queues(HOSTILE) == []
    for queue in ("default", "query:victim-s-supplier.example", "victim-s-own"):
        refused = scene.ask(HOSTILE, "PATCH", f"/queues/{queue}", {"paused": True, "create": True})
        assert (refused.status, refused.body["role"]) == (403, "operator")
        assert scene.ask(HOSTILE, "GET", f"/queues/{queue}").status == 404
    assert not any(queue["paused"] for queue in scene.ask(OPERATOR, "GET", "/queues").body["queues"])


def test_a_tenant_makes_no_more_queues_than_it_may_by_tasks_or_by_queries(scene: Scene) -> None:
    made = [scene.ask(HOSTILE, "POST", "/tasks", WEBHOOK | {"queue": f"any-{n}"}) for n in range(4)]
    asked = {"interval": "PT1H", "until": "`true`", "timeout": 1}
    made += [scene.ask(HOSTILE, "POST", "/queries", asked | {"url": f"https://none-{n}.invalid/"}) for n in range(3)]
    assert [one.status == 429 for one in made] == [False] * 5 + [True] * 2
    assert (made[-1].body["quota"], made[-1].headers["retry-after"]) == ("tenant_max_queues", "600")
    assert scene.ask(HOSTILE, "POST", "/tasks", WEBHOOK | {"queue": "one-more"}).status == 429
    assert scene.add(HOSTILE, "in-default").status == 201
    assert scene.ask(VICTIM, "POST", "/tasks", WEBHOOK | {"queue": "one-more"}).status == 201
    assert len(scene.queues(OPERATOR)) == 7


@MATRIX
def test_a_deployments_quota_holds_in_any_queue_that_a_tenant_thinks_of(scene: Scene) -> None:
    before = scene.used()
    answers = []
    for queue in ("default", "any", "other"):
        task = WEBHOOK | {"queue": queue, "payload": {**WEBHOOK["payload"], "body": noise(SIZE)}}
        answers += [scene.ask(BOUNDED, "POST", "/tasks", task).status for _ in range(12)]
    assert answers == ([201] * 9 + [429] * 3) * 3
    assert scene.used() < before + 40 * SIZE
    assert scene.ask(VICTIM, "POST", "/tasks", WEBHOOK | {"queue": "any"}).status == 201
    large = WEBHOOK | {"payload": {**WEBHOOK["payload"], "body": noise(SIZE)}}
    for _ in range(20):
        assert scene.ask(HOSTILE, "POST", "/tasks", large).status == 201, "another has none"


@MATRIX
def test_a_tenant_whose_tasks_end_at_once_fills_nothing_either(scene: Scene) -> None:
    """What has ended is kept for a day, and was counted no more."""
    before, statuses = scene.used(), []
    for n in range(30):
        task = WEBHOOK | {"id": f"short-{n}", "payload": {**WEBHOOK["payload"], "body": noise(SIZE)}}
        statuses.append(scene.ask(BOUNDED, "POST", "/tasks", task).status)
        scene.ask(BOUNDED, "DELETE", f"/tasks/short-{n}")
    assert statuses == [201] * 9 + [429] * 21
    assert scene.used() < before + 20 * SIZE


def test_answers_that_keys_keep_are_bounded_by_the_deployments_quota(scene: Scene) -> None:
    """Each of any number of keys kept an answer as large as its task, for a day, past every quota."""
    assert scene.add(BOUNDED, "one", 1).status == 201
    body = {"id": "one", "on_duplicate": "replace", "kind": "webhook", "delay": 3600}
    before, answers = scene.used(), dict[str, Answer]()
    for n in range(30):
        payload = {**WEBHOOK["payload"], "body": noise(SIZE)}
        answers[f'"key-{n}"'] = scene.keyed(BOUNDED, f'"key-{n}"', body | {"payload": payload})
    statuses = [one.status for one in answers.values()]
    kept = statuses.count(200)
    assert statuses == [200] * kept + [429] * (30 - kept)
    assert 9 <= kept <= 16, "compressed they are a little smaller"
    assert scene.used() < before + 20 * SIZE
    refused = answers['"key-29"']
    assert refused.body["quota"] == "tenant_max_bytes"
    assert int(refused.headers["retry-after"]) > 60
    again = scene.keyed(BOUNDED, '"key-0"', scene.sent['"key-0"'])
    assert (again.status, again.body) == (200, answers['"key-0"'].body), "what was answered is answered again"
    assert scene.add(BOUNDED, "without-a-key").status == 201
    assert scene.keyed(VICTIM, '"key-0"', body | {"payload": WEBHOOK["payload"]}).status == 201


def test_a_reminder_or_a_task_that_no_wait_makes_room_for_is_422(scene: Scene) -> None:
    """It was told to come again in a while, each time."""
    assert (
        scene.ask(OPERATOR, "PATCH", "/queues/reminders", {"tenant_adds_per_minute": 3, "create": True}).status == 200
    )
    two = [{"email": "ada@example.com"}, {"email": "grace@example.com"}]
    reminder = MEETING | {"remind_before": ["PT1H", "PT2H"], "recipients": two}
    refused = scene.ask(HOSTILE, "POST", "/reminders", reminder)
    assert (refused.status, refused.body["quota"]) == (422, "tenant_adds_per_minute")
    assert scene.ask(HOSTILE, "POST", "/reminders", reminder | {"recipients": two[:1]}).status == 201
    assert scene.ask(OPERATOR, "PATCH", "/queues/default", {"tenant_max_bytes": SIZE, "create": True}).status == 200
    refused = scene.add(HOSTILE, "large", SIZE)
    assert (refused.status, refused.body["errors"][0]["field"]) == (422, "payload")
