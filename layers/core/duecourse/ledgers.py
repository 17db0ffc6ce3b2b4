"""Store and bells of the ledger that a URL names."""

from duecourse.domain.address import WITHOUT_BELLS, split
from duecourse.domain.shards import Sharding
from duecourse.domain.watch import Watchlist
from duecourse.errors import FieldError, InvalidSettings
from duecourse.ports.bells import Bells
from duecourse.ports.store import Store
from duecourse.settings import Settings


def open_store(given: Settings) -> Store:
    """The ledger that the settings name. Raises StoreUnavailable where a cluster does not answer."""
    sharding, deaths = Sharding(given.shards), bool(given.dead_target)
    if given.store.startswith("memory://"):
        from duecourse.adapters.embedded.store import MemoryStore

        return MemoryStore(sharding=sharding, deaths=deaths)
    if given.store.startswith("leveldb://"):
        from duecourse.adapters.embedded.leveldb import LevelDisk
        from duecourse.adapters.embedded.store import EmbeddedStore

        disk = LevelDisk(given.store.removeprefix("leveldb://"))
        return EmbeddedStore(sharding=sharding, deaths=deaths, disk=disk)
    from duecourse.adapters.redis.connect import connect
    from duecourse.adapters.redis.store import RedisStore

    return RedisStore(connect(given.store), given.namespace, sharding=sharding, wait=given.wait, deaths=deaths)


def logged(store: Store, given: Settings) -> Store:
    """The store, with a line of log for what happens to tasks where the settings ask for it."""
    if given.log_tasks == "off":
        return store
    from duecourse.adapters.logged_store import logged as with_log

    return with_log(store)


def open_bells(given: Settings) -> Bells:
    """The bells of the ledger that the settings name. Raises InvalidSettings where that has none."""
    scheme = split(given.store).scheme
    if scheme in WITHOUT_BELLS:
        problem = f"must be a Redis: a ledger at {scheme}:// has no bells, so there are no rings to serve"
        raise InvalidSettings([FieldError("DUECOURSE_STORE", problem)])
    from duecourse.adapters.redis.connect import is_cluster

    events = given.events == "on"
    watched = Watchlist([one.pattern for one in given.watch])
    if is_cluster(given.store):
        from duecourse.adapters.redis.cluster_bells import ClusterBells

        return ClusterBells(given.store, given.namespace, events=events, watched=watched)
    from duecourse.adapters.redis.bells import RedisBells

    return RedisBells.from_url(given.store, given.namespace, events=events, watched=watched)
