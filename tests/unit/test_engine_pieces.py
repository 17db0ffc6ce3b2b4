"""How many tasks a drain claims ahead of its threads."""

import random

from duecourse.domain.outcomes import Done
from duecourse.engine.pieces import Pieces
from duecourse.engine.run import Runner
from duecourse.engine.threads import Threads
from tests.support.clock import HandClock
from tests.support.engine import Lambda, targets_of
from tests.support.kinds import leased
from tests.support.ledger import SHARD


def test_more_than_twice_is_claimed_ahead_only_while_more_finish_at_once_than_there_are_threads() -> None:
    threads = Threads(2)
    runner = Runner(lambda _kind: lambda _task: Done(), None, HandClock().now, random.Random(1))
    pieces = Pieces(runner, targets_of({}, Lambda()), threads)

    def free_after(count: int) -> int:
        pieces.begin(SHARD, [leased("work", {})] * count)
        threads.close()  # all of them have finished
        assert len(pieces.gather(0.0)) == count
        return pieces.free

    assert [free_after(count) for count in (2, 2, 3, 7, 15, 16, 2)] == [4, 4, 7, 14, 16, 16, 4]
