"""Queues that a stranger made, by names and by hosts that do not exist: they pass away, and with them their cost."""

from collections.abc import Iterator

import pytest
import redis

from duecourse.errors import CallFailed
from duecourse.guard.http_types import HttpAnswer, HttpRequest
from duecourse.ledger.operation_types import FORGET_MS
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ringing.tick import PARTS, Retention, Sweeper
from duecourse.settings import Settings, parse
from duecourse_local.harness.environment import TENANTS
from tests.support.clock import HandClock
from tests.support.engine import MARGIN_MS, ample, engine
from tests.support.requests import WEBHOOK, Answer, ask
from tests.support.wired import wired_with

HOSTS = 30
NAMES = 300
SOON_MS = 60_000
USUAL = Settings()


class NoSuchHost:
    """An HttpCaller of a network in which no name leads anywhere."""

    def call(self, request: HttpRequest) -> HttpAnswer:
        raise CallFailed(f"{request.url}: no such host")


@pytest.fixture
def ledger(redis_client: redis.Redis, clock: HandClock) -> Iterator[Ledger]:
    """A ledger on a Redis, behind the HTTP function of whose tenants each may make forty queues."""
    ledger = Ledger(redis_client, travel=clock, max_queues=HOSTS + 10)
    settings = parse(TENANTS)
    with wired_with(settings, ledger=ledger, http=NoSuchHost()):
        yield ledger


def hostile(method: str, path: str, body: object = None, query: str = "") -> Answer:
    return ask(method, path, body, query=query, x_tenant="hostile")


def tick(ledger: Ledger) -> None:
    with engine(ledger, lambda _task: None) as run:
        sweeper = Sweeper(ledger, run.drainer, Retention(USUAL.retention_ms, USUAL.dead_retention_ms), MARGIN_MS)
        sweeper.tick(sweeper.survey(ample), ample)


def cost(ledger: Ledger, client: redis.Redis, clock: HandClock) -> int:
    """How many commands Redis runs for as many ticks as look at every shard once."""
    before = calls(client)
    for _ in range(PARTS):
        clock.advance(SOON_MS)
        tick(ledger)
    return calls(client) - before


def calls(client: redis.Redis) -> int:
    """Commands that were run, those within scripts too."""
    return sum(one["calls"] for name, one in client.info("commandstats").items() if name != "cmdstat_info")


def pass_away(ledger: Ledger, clock: HandClock) -> None:
    """Until all that failed is dead, and forgotten, and then its queue."""
    for step in (USUAL.retention_ms, USUAL.dead_retention_ms, USUAL.dead_retention_ms):
        clock.advance(step)
        tick(ledger)
    for _ in range(3 * PARTS):
        clock.advance(max(SOON_MS, 2 * FORGET_MS // PARTS))
        tick(ledger)


def test_the_queues_of_hosts_that_do_not_exist_pass_away_with_their_cost(
    ledger: Ledger, redis_client: redis.Redis, clock: HandClock
) -> None:
    tick(ledger)
    at_first = cost(ledger, redis_client, clock)
    asked = {"interval": "PT1H", "until": "`true`"}
    for n in range(HOSTS):
        status = hostile("POST", "/queries", asked | {"url": f"https://none-{n}.example/"}).status
        assert status in {200, 202, 502}
    assert len(ledger.shards()) == HOSTS
    assert cost(ledger, redis_client, clock) > at_first + HOSTS
    pass_away(ledger, clock)
    assert ledger.shards() == []
    assert cost(ledger, redis_client, clock) <= at_first


def test_the_queues_of_names_that_nobody_uses_are_bounded_and_pass_away(
    ledger: Ledger, redis_client: redis.Redis, clock: HandClock
) -> None:
    answers = [hostile("POST", "/tasks", WEBHOOK | {"id": "a", "queue": f"any-{n}"}) for n in range(NAMES)]
    assert [one.status for one in answers] == [201] * (HOSTS + 10) + [429] * (NAMES - HOSTS - 10)
    assert (answers[-1].body["quota"], answers[-1].headers["Retry-After"]) == ("tenant_max_queues", "600")
    assert len(ledger.shards()) == HOSTS + 10
    assert ask("POST", "/tasks", WEBHOOK | {"queue": "another-s"}, x_tenant="victim").status == 201
    for n in range(HOSTS + 10):
        assert hostile("DELETE", "/tasks/a", query=f"queue=any-{n}").status == 204
    pass_away(ledger, clock)
    assert ledger.shards() == []
    assert not [key for key in redis_client.scan_iter() if key.endswith(b":tasks") and b"any-" in key]
