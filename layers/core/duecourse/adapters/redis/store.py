"""The ledger on Redis 6.2 or newer, or Valkey: every verb is one Lua script on one shard."""

from duecourse.adapters.redis import arguments
from duecourse.adapters.redis.adds import Adds
from duecourse.adapters.redis.connect import Client
from duecourse.adapters.redis.leases import RedisLeases
from duecourse.adapters.redis.queues import RedisQueues
from duecourse.adapters.redis.tasks import RedisTasks
from duecourse.adapters.redis.upkeep import RedisUpkeep
from duecourse.adapters.redis.verbs import Verbs
from duecourse.adapters.redis.warmth import RedisWarmth
from duecourse.domain.shards import Sharding
from duecourse.ports.clock import Clock


class RedisStore(RedisTasks, RedisLeases, RedisQueues, RedisUpkeep):
    """The ledger (ports.store.Store) on one Redis, a Sentinel's primary or a cluster: a part a contract.

    `travel` overrides the server's clock, for tests: its shards are marked so, and hang no bell. `wait` is the number
    of replicas that must have adds, moves, cancels, replays and settings before the caller has an answer. A settle that
    a failover loses is a run again, as after a lapsed lease. With `deaths`, each death adds a notification.
    """

    def __init__(
        self,
        client: Client,
        namespace: str = "duecourse",
        *,
        sharding: Sharding | None = None,
        travel: Clock | None = None,
        wait: int = 0,
        deaths: bool = False,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._sharding = sharding or Sharding()
        self._ending = arguments.ending(deaths=deaths)
        self._verbs = Verbs(client, namespace, self._sharding, travel, wait)
        self._scripts = self._verbs.scripts
        self._record = self._verbs.record
        self._adds = Adds(self._verbs)

    def warmth(self) -> RedisWarmth:
        """See Store."""
        return RedisWarmth(self._verbs)
