"""What a claim of many makes Redis keep as an index, not as a list that is looked through for each member."""

import redis

from duecourse.ledger.keys import keys_of
from duecourse.ledger.operations.ledger import Ledger
from tests.support.ledger import SHARD, claim, new
from tests.support.redis_ledger import check

KEYS = keys_of("duecourse", SHARD)
TENANTS = 20


def test_many_tenants_and_many_leases_are_indexed_and_nothing_is_left_of_what_made_them_so(
    redis_client: redis.Redis,
) -> None:
    ledger = Ledger(redis_client)
    ledger.add([new(f"a{n}", tenant=f"t{n % TENANTS}") for n in range(20 * TENANTS)])
    claim(ledger)
    taken = claim(ledger)
    assert len(taken) == 100
    keys = (KEYS.meta, KEYS.ring, KEYS.leased)
    assert [redis_client.object("encoding", key) for key in keys] == [b"hashtable", b"skiplist", b"skiplist"]
    fields = {field.decode().partition(":")[0] for field in redis_client.hkeys(KEYS.meta)}
    assert fields <= {"fence", "running", "numbers", "layout"}
    assert set(redis_client.zrange(KEYS.ring, 0, -1)) <= {f"t{n}".encode() for n in range(TENANTS)}
    check(redis_client)


def test_few_stay_lists_which_take_less_memory(redis_client: redis.Redis) -> None:
    ledger = Ledger(redis_client)
    ledger.add([new(f"a{n}", tenant=f"t{n % 2}") for n in range(20)])
    claim(ledger, 10)
    encodings = {redis_client.object("encoding", key) for key in (KEYS.meta, KEYS.ring, KEYS.leased)}
    assert encodings <= {b"listpack", b"ziplist"}
