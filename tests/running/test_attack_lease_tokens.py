"""One lease's token settles that lease alone, over HTTP too; and nothing that is shown tells a token.

Row 7 of the attacks that were tried: from one token of a claim the others followed by counting, and six of six foreign
leases were settled. tests/running/test_rules_lease_tokens.py tries the same at every store.
"""

from collections.abc import Callable, Iterator

import pytest

from duecourse.ledger.connect import connect
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operation_types import Delivery
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import DEFAULT_QUEUE, FENCE_DIGITS, NewTask, Shard, Task
from tests.support.matrix import MATRIX
from tests.support.redis_server import REDIS, RedisServer
from tests.support.requests import ask
from tests.support.tokens import guesses
from tests.support.wired import wired_with

COUNT = 7
LEASE_MS = 60_000
MOST = 60
"""Tokens that are tried over HTTP: those that follow by counting come first."""
HANDED = {"report": Delivery("lambda:report", 100, LEASE_MS)}
VERBS = {
    "settle": {"outcome": "done", "result": {"stolen": True}},
    "extend": {"for": "PT5M"},
    "save": {"state": "stolen"},
    "begin": {"worker": "thief"},
}


@pytest.fixture(params=["memory", pytest.param("redis", marks=MATRIX)])
def ledger(request: pytest.FixtureRequest, server_of: Callable[[str], RedisServer]) -> Iterator[Ledger]:
    if request.param == "memory":
        yield EmbeddedLedger()
        return
    with connect(server_of(REDIS[0]).emptied().url) as client:
        yield Ledger(client)


def rejects(task: Task, tokens: list[str]) -> bool:
    """True if the HTTP API takes none of the tokens for the task, whatever is asked for by it."""
    found = {
        (verb, ask("POST", f"/tasks/{task.id}/{verb}", body | {"token": token}).status)
        for token in tokens
        for verb, body in VERBS.items()
    }
    return found == {(verb, 409) for verb in VERBS}


@pytest.mark.parametrize("kind", ["work", "report"])
def test_who_has_one_lease_of_a_claim_can_do_nothing_with_the_others(ledger: Ledger, kind: str) -> None:
    ledger.add([NewTask(f"t{n}", kind) for n in range(COUNT)])
    claimed = ledger.claim(Shard(), COUNT, lease_ms=LEASE_MS, deliveries=HANDED)
    *others, mine = claimed.tasks
    assert len(others) == COUNT - 1
    with wired_with(ledger=ledger):
        before = [ledger.get(DEFAULT_QUEUE, task.id) for task in others]
        for other in others:
            followed = guesses([mine], other, claimed.now)
            assert other.token not in followed
            assert rejects(other, followed[:MOST]), other.id
        assert [ledger.get(DEFAULT_QUEUE, task.id) for task in others] == before
        own = {"token": mine.token, "outcome": "done"}
        assert ask("POST", f"/tasks/{mine.id}/settle", own).body == {"settled": "done"}


def test_no_answer_shows_a_token_of_a_lease_that_runs(ledger: Ledger) -> None:
    ledger.add([NewTask(f"t{n}", "work", group="g") for n in range(COUNT)])
    tasks = ledger.claim(Shard(), COUNT, lease_ms=LEASE_MS).tasks
    with wired_with(ledger=ledger):
        shown = [ask("GET", f"/tasks/{task.id}{more}").text for task in tasks for more in ("", "/why")]
        shown += [ask("GET", path, query=query).text for path, query in LISTS]
        shown += [
            ask("PATCH", f"/tasks/{tasks[0].id}", {"delay": 60}).text,
            ask("DELETE", f"/tasks/{tasks[1].id}").text,
        ]
    assert all(task.id in "".join(shown) for task in tasks)
    for task in tasks:
        assert task.token[FENCE_DIGITS:] not in "".join(shown)


LISTS = [
    ("/tasks", "queue=default"),
    ("/tasks", "queue=default&state=leased"),
    ("/queues", ""),
    ("/queues/default", ""),
]
