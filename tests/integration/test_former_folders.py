"""Folders that earlier versions wrote: read once, rewritten, and worked on."""

import json
import shutil
from pathlib import Path
from typing import Any

import plyvel  # type: ignore[import-untyped]
import pytest

from duecourse.adapters.embedded.leveldb import LAYOUT, LAYOUT_KEY, LevelDisk
from duecourse.adapters.embedded.store import EmbeddedStore
from duecourse.adapters.redis.keys import keys_of
from duecourse.adapters.redis.layout import NEWEST
from duecourse.domain.pages import Wanted
from duecourse.domain.queues import Rate
from duecourse.domain.shards import Sharding
from duecourse.domain.task import Shard, Task
from duecourse.ports.idempotency import KeyedRequest, RequestState, SavedResponse
from tests.support import redis_ledger
from tests.support.clock import HandClock

FOLDERS = Path(__file__).parent / "fixtures" / "ledgers"
SHARD = Shard()
VERSIONS = ["743e568", "2026-11-22", "be6de37"]
"""The trees that wrote them: 0.1.0, and on the way to the next one by the second ledger and by that of now."""


def told(task: Task) -> list[Any]:
    return [
        *(task.id, task.tenant, task.group, str(task.status), task.payload_json, task.due_at, task.run, task.attempt),
        *(task.token, task.lease_expires_at, task.result_json, len(task.log)),
    ]


def shown(store: EmbeddedStore, clock: HandClock) -> dict[str, Any]:
    """What the folder's own version showed of it when it was written."""
    tasks = {tenant: store.page("default", Wanted(), None, 100, tenant).tasks for tenant in "ab"}
    return {
        "at": clock.at,
        "tasks": {tenant: list(map(told, found)) for tenant, found in tasks.items()},
        "many": list(map(told, store.page("many", Wanted(), None, 100).tasks)),
        "stats": list(store.stats(SHARD)[:6]),
        "group": [task.id for task in store.group("default", "g", "a")],
        "shards": [str(shard) for shard in store.shards()],
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_folder_of_a_former_layout_is_read_once_and_has_all_that_it_had(tmp_path: Path, version: str) -> None:
    before = json.loads((FOLDERS / f"{version}.json").read_text())
    folder, clock = tmp_path / "ledger", HandClock(before["at"])
    shutil.copytree(FOLDERS / version, folder)
    for _ in range(2):
        store = EmbeddedStore(clock, Sharding({"many": 2}), disk=LevelDisk(str(folder)))
        assert shown(store, clock) == before
        redis_ledger.check(store.client, SHARD)
        settings = store.settings_of(["default"])[0]
        assert (settings.paused, settings.max_running, settings.rate) == (False, 50, Rate(100, 60_000))
        assert store.idempotency().begin(KeyedRequest("-", "key", b"f" * 32), b"p" * 8, 1_000) == SavedResponse(
            RequestState.ENDED, b"answer"
        )
        store.close()
    with plyvel.DB(str(folder)) as written:
        assert written.get(LAYOUT_KEY) == LAYOUT == b"duecourse keyspace 5"


@pytest.mark.parametrize("version", VERSIONS)
def test_sweeps_rewrite_its_records_in_the_newest_version(tmp_path: Path, version: str) -> None:
    before = json.loads((FOLDERS / f"{version}.json").read_text())
    folder, clock = tmp_path / "ledger", HandClock(before["at"])
    shutil.copytree(FOLDERS / version, folder)
    store = EmbeddedStore(clock, Sharding({"many": 2}), disk=LevelDisk(str(folder)))
    for shard in store.shards():
        while store.sweep(shard, retention_ms=10**12).more:
            pass
        records = store.client.hgetall(keys_of("duecourse", shard).tasks)
        assert {data[0] for data in records.values()} <= {NEWEST}
    assert shown(store, clock)["group"] == before["group"]
    redis_ledger.check(store.client, SHARD)
    store.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_leased_and_due_in_it_is_worked_on(tmp_path: Path, version: str) -> None:
    before = json.loads((FOLDERS / f"{version}.json").read_text())
    folder, clock = tmp_path / "ledger", HandClock(before["at"])
    shutil.copytree(FOLDERS / version, folder)
    store = EmbeddedStore(clock, Sharding({"many": 2}), disk=LevelDisk(str(folder)))
    fence = max(int(task[8][:12], 16) for tasks in before["tasks"].values() for task in tasks if task[8])
    clock.advance(60_000)
    claimed = store.claim(SHARD, 100, lease_ms=60_000).tasks
    assert len(claimed) + store.stats(SHARD).leased >= before["stats"][0]
    assert min(int(task.token[:12], 16) for task in claimed) > fence, "fences go on where they were"
    redis_ledger.check(store.client, SHARD)
    store.close()
