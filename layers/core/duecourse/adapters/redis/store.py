"""The ledger on Redis 6.2 or newer, or Valkey: every verb is one Lua script on one shard."""

from duecourse.adapters.redis.deployments import RedisDeployments
from duecourse.adapters.redis.in_flight import RedisInFlight
from duecourse.adapters.redis.leases import RedisLeases
from duecourse.adapters.redis.queues import RedisQueues
from duecourse.adapters.redis.schedule_file import RedisFileRecord
from duecourse.adapters.redis.schedules import RedisSchedules
from duecourse.adapters.redis.seal_keys import RedisSealKeys
from duecourse.adapters.redis.tasks import RedisTasks
from duecourse.adapters.redis.upkeep import RedisUpkeep
from duecourse.adapters.redis.waits import RedisWaits
from duecourse.adapters.redis.warmth import RedisWarmth


class RedisStore(RedisTasks, RedisLeases, RedisQueues, RedisUpkeep, RedisWaits, RedisSchedules):
    """The ledger (ports.store.Store) on one Redis, a Sentinel's primary or a cluster: a part a contract.

    `travel` overrides the server's clock, for tests: its shards are marked so, and hang no bell. `wait` is the number
    of replicas that must have adds, moves, cancels, replays and settings before the caller has an answer. A settle that
    a failover loses is a run again, as after a lapsed lease. With `deaths`, each death adds a notification.
    Each tenant may make `max_queues` queues, 0 for any number. `quotas` are the deployment's (domain.quotas.as_text);
    None leaves those that shards have.
    """

    def warmth(self) -> RedisWarmth:
        """See Store."""
        return RedisWarmth(self._verbs)

    def seal_keys(self) -> RedisSealKeys:
        """See Store."""
        return RedisSealKeys(self._verbs)

    def deployments(self) -> RedisDeployments:
        """See Store."""
        return RedisDeployments(self._scripts, self._verbs.namespace)

    def schedule_files(self) -> RedisFileRecord:
        """See Store."""
        return RedisFileRecord(self._scripts, self._verbs.namespace)

    def in_flight(self) -> RedisInFlight:
        """See Store."""
        return RedisInFlight(self._scripts, self._verbs.namespace)
