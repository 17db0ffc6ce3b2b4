"""A tick and a drain on Redis where one queue's shards are being changed, or were changed under a warm function."""

import pytest
import redis

from duecourse.errors import StoreMisused, StoreUnavailable
from duecourse.ledger.keys import keys_of
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.task import Shard
from duecourse.ringing.tick import Retention, Sweeper
from tests.support.engine import MARGIN_MS, ample, engine
from tests.support.ledger import new

RETENTION = Retention(86_400_000)


@pytest.mark.parametrize(("told", "why"), [("1>4#somebody", StoreUnavailable), ("4", StoreMisused)])
def test_one_queue_whose_shards_are_changed_stops_no_other(
    redis_client: redis.Redis, told: str, why: type[StoreUnavailable | StoreMisused]
) -> None:
    ledger = Ledger(redis_client)
    ledger.add([new(queue, queue=queue) for queue in ("a", "b", "c")])
    redis_client.hset(keys_of("duecourse", Shard("b")).meta, "shards", told)
    with engine(ledger, lambda _task: None) as run:
        sweeper = Sweeper(ledger, run.drainer, RETENTION, MARGIN_MS)
        ticked = sweeper.tick(sweeper.survey(ample), ample)
        ledger.add([new("more", queue="c")])
        with pytest.raises(why):
            run.drainer.drain([Shard("b"), Shard("c")], ample)
    assert isinstance(ticked.away, why)
    assert (ticked.done, ticked.left_out) == (2, 1)
    done = [ledger.stats(Shard(queue)).done for queue in ("a", "c")]
    assert done == [1, 2]
