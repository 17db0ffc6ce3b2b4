"""The layout of the record, which the scripts and the key-value store share; Redis only."""

import pytest
import redis

from duecourse.adapters.keyvalue.held import decode, encode
from duecourse.adapters.record import FRONT, VERSION
from duecourse.adapters.redis_keys import keys_of
from duecourse.adapters.redis_store import RedisStore
from duecourse.domain.outcomes import Ending
from tests.support.ledger import SHARD, add, claim_one, lease_of, settle

FLAGS_AT, ORIGIN_AT = 2, FRONT.size
STEPS = ["added", "leased", "saved", "again", "retried", "done", "dead"]


@pytest.fixture
def store(redis_client: redis.Redis) -> RedisStore:
    return RedisStore(redis_client)


def bring(store: RedisStore, step: str) -> None:
    """One task brought so far, with all the fields that a task may have."""
    fields = {"payload": '{"é": 1}', "group": "g", "deadline_ms": 60_000, "state": '{"n": 0}'}
    if step == "added":
        add(store, delay_ms=9, **fields)
        return
    task = claim_one(store, **fields)
    if step == "saved":
        store.save(SHARD, lease_of(task), '{"n": 1}')
    elif step != "leased":
        how = {"again": Ending.AGAIN, "retried": Ending.RETRY, "done": Ending.DONE, "dead": Ending.DROP}[step]
        settle(store, task, how, detail="why", result='{"r": 1}' if how is Ending.DONE else "")


@pytest.mark.parametrize("step", STEPS)
def test_a_record_that_the_scripts_wrote_is_what_python_would_write(
    store: RedisStore, redis_client: redis.Redis, step: str
) -> None:
    bring(store, step)
    written = bytearray(redis_client.hget(keys_of("duecourse", SHARD).tasks, "-/a") or b"")
    assert written[0] == VERSION == 1
    again = bytearray(encode(decode("default", "-/a", bytes(written))))
    for data in (written, again):  # what tells a re-sent add is Redis's alone
        data[FLAGS_AT] &= 2
        data[ORIGIN_AT : ORIGIN_AT + 8] = bytes(8)
    assert again == written
