"""Adds of many coroutines: few round trips, and each coroutine gets the answer or the error of its own add."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from duecourse import AsyncClient, Client, errors
from duecourse.client.async_client import ClientThreads, SharedAdds
from duecourse.guard.seals import DataKey
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.keys import keys_of
from duecourse.ledger.operation_types import MAX_SHARED
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import AddResult, NewTask
from duecourse.ledger.task_log_lines import MOST, TaskLog
from duecourse.settings import Settings
from tests.support.ledger import SHARD, stored_task
from tests.support.proxies import load_scripts
from tests.support.redis_monitor import sent_by
from tests.support.redis_server import RedisServer
from tests.support.wired import wired_with

pytestmark = pytest.mark.slow

LATER: dict[str, Any] = {"kind": "report", "payload": {}, "delay": "PT1H"}
TARGETS = {"report": "lambda:Report"}
SECRET = {"headers": {"authorization": "Bearer 0123456789abcdef"}}


@pytest.fixture
def on_redis(redis_client: redis.Redis) -> Iterator[None]:
    """Clients of the environment use this server."""
    load_scripts(redis_client)
    ledger = Ledger(redis_client)
    with wired_with(settings=Settings(targets=TARGETS), ledger=ledger):
        Client.from_env().add(**LATER, id="first")
        yield


def add_all(*asked: dict[str, Any], **settings: Any) -> list[Any]:
    """The answer or the error of each of these adds, which all begin in one turn of a loop."""

    async def use() -> list[Any]:
        async with AsyncClient.from_env(**settings) as client:
            return await asyncio.gather(*(client.add(**one) for one in asked), return_exceptions=True)

    return asyncio.run(use())


@pytest.mark.usefixtures("on_redis")
def test_adds_that_begin_together_share_round_trips(redis_server: RedisServer) -> None:
    added = list[Any]()
    asked = [{**LATER, "id": f"a{n}"} for n in range(5 * MAX_SHARED)]
    assert sent_by(redis_server, lambda: added.extend(add_all(*asked))).count("EVALSHA") == 5
    assert [(one.created, one.task.id) for one in added] == [(True, one["id"]) for one in asked]


@pytest.mark.usefixtures("on_redis")
def test_those_of_large_payloads_are_not_sent_together(redis_server: RedisServer) -> None:
    asked = [{**LATER, "payload": {"text": 240_000 * "x"}} for _ in range(9)]
    assert sent_by(redis_server, lambda: add_all(*asked)).count("EVALSHA") == 3


@pytest.mark.usefixtures("on_redis")
def test_each_gets_its_own_answer_or_error() -> None:
    added, again, exists, unknown, wrong, other = add_all(
        {**LATER, "id": "a"},
        {**LATER, "id": "a", "payload": {"n": 2}},
        {**LATER, "id": "first", "on_duplicate": "reject"},
        {**LATER, "kind": "strange"},
        {**LATER, "delay": "soon"},
        {**LATER, "id": "b", "queue": "other"},
    )
    assert (added.created, again.created, again.task.payload, other.task.queue) == (True, False, {}, "other")
    assert isinstance(exists, errors.TaskScheduled)
    assert "kind" in str(unknown)
    assert "delay" in str(wrong)


@pytest.mark.usefixtures("on_redis")
def test_a_record_that_cannot_be_read_fails_the_add_of_its_own_id_alone(redis_client: redis.Redis) -> None:
    redis_client.hset(keys_of("duecourse", SHARD).tasks, "-/bad", b"broken")
    good, bad, other = add_all(*({**LATER, "id": id} for id in ("a", "bad", "b")))
    assert isinstance(bad, errors.StoreMisused)
    assert (good.created, other.created) == (True, True)


@pytest.mark.parametrize("targets", [TARGETS, {}])
def test_while_the_store_is_away_each_has_an_error_of_its_own(targets: dict[str, str]) -> None:
    """Also where the kinds are asked for there, which without targets are the ledger's."""

    async def use() -> list[Any]:
        async with AsyncClient("redis://127.0.0.1:1/0", targets=targets) as client:
            return await asyncio.gather(*(client.add(**LATER) for _ in range(3)), return_exceptions=True)

    found = asyncio.run(use())
    assert {type(one) for one in found} == {errors.StoreUnavailable}
    assert len({id(one) for one in found}) == 3


class NoKey:
    """A key that does not answer."""

    def new(self) -> DataKey:
        """Fail."""
        raise errors.SealUnavailable("KMS is away")

    def unwrap(self, _wrapped: bytes) -> bytes:
        """Fail."""
        raise errors.SealUnavailable("KMS is away")


def test_without_its_key_a_credential_fails_the_add_that_has_it_alone(ledger: EmbeddedLedger) -> None:
    with wired_with(settings=Settings(targets=TARGETS), ledger=ledger, wrapping=NoKey()):
        plain, secret, other = add_all(LATER, {**LATER, "payload": SECRET}, LATER)
    assert isinstance(secret, errors.SealUnavailable)
    assert (plain.created, other.created) == (True, True)


def test_credentials_are_sealed(ledger: EmbeddedLedger) -> None:
    with wired_with(settings=Settings(targets=TARGETS), ledger=ledger):
        assert all(one.created for one in add_all({**LATER, "payload": SECRET, "id": "a"}, LATER))
    assert SECRET["headers"]["authorization"] not in stored_task(ledger).payload_json


def test_each_has_a_line_of_log(ledger: EmbeddedLedger, capsys: pytest.CaptureFixture[str]) -> None:
    with wired_with(settings=Settings(targets=TARGETS), ledger=ledger.with_log(TaskLog())):
        add_all(*({**LATER, "id": f"a{n}"} for n in range(MOST + 1)))
    said = [json.loads(line)["task"] for line in capsys.readouterr().out.splitlines()]
    assert said == [f"a{n}" for n in range(MOST + 1)]


def test_a_client_that_is_closed_has_begun_all_adds_before_that(ledger: EmbeddedLedger) -> None:
    async def use() -> list[AddResult]:
        client = AsyncClient.from_env(threads=1)
        adds = [asyncio.create_task(client.add(**LATER)) for _ in range(3 * MAX_SHARED)]
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(errors.ClientClosed):
            await client.add(**LATER)
        return await asyncio.gather(*adds)

    with wired_with(settings=Settings(targets=TARGETS), ledger=ledger):
        assert {one.created for one in asyncio.run(use())} == {True}


class NoThreads(ClientThreads):
    """Threads that cannot start, as at the end of the process."""

    def start(self, _work: object) -> Any:
        """Fail as an executor does."""
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")


def test_where_no_thread_can_start_each_add_fails_and_none_waits() -> None:
    async def use() -> list[Any]:
        adds = SharedAdds(lambda _tasks: [], NoThreads(1))
        begun = (adds.add(NewTask("a", "report")) for _ in range(2))
        return await asyncio.wait_for(asyncio.gather(*begun, return_exceptions=True), 5)

    assert [type(one) for one in asyncio.run(use())] == [RuntimeError] * 2


def test_a_client_serves_the_loops_of_several_threads(ledger: EmbeddedLedger) -> None:
    async def use(client: AsyncClient) -> bool:
        both = await asyncio.gather(client.add(**LATER), client.add(**LATER))
        return all(one.created for one in both)

    with wired_with(settings=Settings(targets=TARGETS), ledger=ledger):
        client = AsyncClient.from_env()
        assert [asyncio.run(use(client)) for _ in range(2)] == [True, True]
        asyncio.run(client.close())


def test_a_closed_loop_whose_adds_still_waited_is_not_kept_beside_the_next(
    ledger: EmbeddedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that gives up each add after a while has a loop for each try."""
    free, add_each = threading.Event(), Client._add_each
    monkeypatch.setattr(Client, "_add_each", lambda *asked: free.wait(30) and add_each(*asked))

    async def give_up(client: AsyncClient) -> None:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.add(**LATER), 0.01)

    with wired_with(settings=Settings(targets=TARGETS), ledger=ledger):
        client = AsyncClient.from_env(threads=1)
        for _ in range(3):
            asyncio.run(give_up(client))
        assert len(client._adds) == 1
        free.set()
        asyncio.run(client.close())
