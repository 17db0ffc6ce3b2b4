"""A shard in numbers where very many tenants take turns: what the server does for it is bounded."""

import pytest
import redis

from duecourse.ledger.keys import keys_of
from duecourse.ledger.operations.ledger import Ledger
from tests.support.clock import HandClock
from tests.support.ledger import SHARD, claim, new

TENANTS = 1_500
MOST = 1_000
KEYS = keys_of("duecourse", SHARD)


def in_turn(client: redis.Redis, clock: HandClock) -> tuple[Ledger, list[str]]:
    """A ledger whose tenants all take turns, two due tasks each; answers them in their order too."""
    ledger = Ledger(client, travel=clock)
    for first in range(0, TENANTS, 500):
        ledger.add([new(str(n), tenant=f"t{first + n % 500}") for n in range(1_000)])
    while client.zcard(KEYS.ring) < TENANTS:
        claim(ledger, 1)
    return ledger, [tenant.decode() for tenant in client.zrange(KEYS.ring, 0, -1)]


def test_a_thousand_of_them_are_looked_at(redis_client: redis.Redis, clock: HandClock) -> None:
    ledger, _ = in_turn(redis_client, clock)
    redis_client.config_resetstat()
    ledger.stats(SHARD)
    calls = redis_client.info("commandstats")["cmdstat_zrange"]["calls"]
    assert MOST <= calls <= MOST + 10


@pytest.mark.parametrize("place", [0, 699, -300, -1])
def test_the_longest_due_task_is_told_of_those_at_both_ends(
    redis_client: redis.Redis, clock: HandClock, place: int
) -> None:
    ledger, tenants = in_turn(redis_client, clock)
    long_ago = clock.at - 3_600_000
    ledger.add([new("old", tenant=tenants[place], due_at=long_ago)])
    assert ledger.stats(SHARD).oldest_due_at == long_ago
