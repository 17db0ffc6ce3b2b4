"""Every store that keeps the ledger: what is in `test_rules_*.py` runs against each."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Generic, TypeVar

import pytest

from duecourse.ledger.connect import connect
from duecourse.ledger.embedded.in_process_redis import number
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.operations.ledger import Ledger
from duecourse.ledger.sharding import Sharding
from tests.support import redis_ledger
from tests.support.clock import HandClock
from tests.support.level_ledger import level_ledger
from tests.support.matrix import in_turn
from tests.support.redis_login import logged_in, refused, rights_on
from tests.support.redis_server import REDIS, VALKEY, labelled

CLUSTER = "-cluster"
"""End of the name of a store on six servers: the newest Redis, or Valkey."""
CLUSTERS = {"redis": REDIS[-1], "valkey": VALKEY}
LOGIN = "-with-a-login"
"""End of the name of a server at which the store has the rights that the pages give, and no more."""
FURTHER = (f"redis-{REDIS[-1]}{LOGIN}", labelled(VALKEY), "leveldb", *(f"{kind}{CLUSTER}" for kind in CLUSTERS))
STORES = ["memory", *in_turn(f"redis-{REDIS[0]}", *FURTHER)]
SHARDS = 8
T = TypeVar("T")


def whole(value: float) -> bytes:
    """Its text; AssertionError where servers differ (tests/ledger/test_same_bytes_on_every_server.py)."""
    assert value == value // 1, value
    assert abs(value) < 1e17, value
    return number(value)


def opened(
    kind: str, request: pytest.FixtureRequest, clock: HandClock, sharding: Sharding, **options: Any
) -> Iterator[Ledger]:
    """An empty ledger, whose keys must be in order at the end."""
    if kind == "memory":
        memory = EmbeddedLedger(clock, sharding, **options)
        yield memory
        for shard in sharding.every("default"):
            redis_ledger.check(memory.client, shard)
        return
    if kind == "leveldb":
        with level_ledger(request.getfixturevalue("tmp_path"), clock, sharding, **options) as ledger:
            yield ledger
        return
    served = servers(kind, request)
    operators = served.emptied().url
    place = logged_in(served, rights_on(REDIS[-1])) if kind.endswith(LOGIN) else operators
    with connect(place) as client, connect(operators) as operator:
        yield Ledger(client, sharding=sharding, travel=clock, **options)
        for shard in sharding.every("default"):
            redis_ledger.check(operator, shard)
    if kind.endswith(LOGIN):
        assert refused(served) == set()


def servers(kind: str, request: pytest.FixtureRequest) -> Any:
    """The server of a store's name, or the six."""
    name = kind.removesuffix(LOGIN)
    if name.endswith(CLUSTER):
        return request.getfixturevalue("cluster_of")(CLUSTERS[name.removesuffix(CLUSTER)])
    return request.getfixturevalue("server_of")(name.removeprefix("redis-"))


class Beginning(Generic[T]):
    """What ledgers in memory begin with: made by the first one, and copied to the others, whose clocks begin alike."""

    _keys: dict[str, Any] | None = None

    def given(self, ledger: EmbeddedLedger, make: Callable[[], T]) -> T:
        """The answer of `make`, which fills an empty ledger; for a further ledger the same, with copies of the keys."""
        keys = vars(ledger._server._space)
        if self._keys is None:
            self._made = make()
            self._keys = deepcopy(keys)
        else:
            keys.update(deepcopy(self._keys))
        return self._made
