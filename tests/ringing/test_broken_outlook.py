"""The outlook on Redis where a queue's shards are being changed or its server is short of memory."""

import pytest
import redis

from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ledger.keys import keys_of
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Shard
from duecourse.ringing.tick import AT_A_TIME, Retention, Sweeper
from tests.support.engine import MARGIN_MS, ample, engine
from tests.support.ledger import new


@pytest.mark.parametrize(("told", "why"), [("1>4#somebody", StoreUnavailable), ("4", StoreMisused)])
def test_a_shard_of_another_count_is_told_beside_the_others(
    redis_client: redis.Redis, told: str, why: type[StoreUnavailable | StoreMisused]
) -> None:
    ledger = Ledger(redis_client)
    ledger.add([new(queue, queue=queue, delay_ms=60_000) for queue in ("a", "b", "c")])
    redis_client.hset(keys_of("duecourse", Shard("b")).meta, "shards", told)
    redis_client.script_flush()
    for _ in range(2):  # the first time one by one, for the script is not known to the server
        a, b, c = ledger.outlook_of([Shard("a"), Shard("b"), Shard("c")])
        assert isinstance(b, why)
        assert not isinstance(a, Exception)
        assert not isinstance(c, Exception)


def test_a_tick_whose_round_cannot_be_noted_sweeps_it_again(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client)
    ledger.add([new(queue=f"q{n}", delay_ms=3_600_000) for n in range(AT_A_TIME + 1)])
    redis_client.config_set("maxmemory", 1)
    with engine(ledger, lambda _task: None) as run:
        sweeper = Sweeper(ledger, run.drainer, Retention(86_400_000), MARGIN_MS)
        ticked = sweeper.tick(sweeper.survey(ample), ample)
        assert (ticked.shards, ticked.left_out) == (AT_A_TIME + 1, 0)
        assert ledger.rounds().swept_at() == {}
        redis_client.config_set("maxmemory", 0)
        sweeper.tick(sweeper.survey(ample), ample)
    assert set(ledger.rounds().swept_at()) == {0, 1, 2, 3}
