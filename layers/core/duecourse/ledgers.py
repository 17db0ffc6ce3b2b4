"""Store and bells of the ledger that a URL names."""

from typing import TYPE_CHECKING, NamedTuple

from duecourse.domain.address import WITHOUT_BELLS, check_store, split
from duecourse.domain.quotas import as_text
from duecourse.domain.shards import Sharding
from duecourse.domain.watch import Watchlist
from duecourse.errors import FieldError, InvalidSettings
from duecourse.ports.bells import BellServers
from duecourse.ports.clock import Clock
from duecourse.ports.store import Store
from duecourse.settings import Settings

if TYPE_CHECKING:
    from duecourse.adapters.redis.connect import Client
    from duecourse.adapters.redis.login import Login


class Place(NamedTuple):
    """Place of a ledger: its URL and, where that is a secret, the login in it."""

    url: str
    login: "Login | None" = None


def place_of(given: Settings) -> Place:
    """Place of the ledger that the settings name.

    Raises InvalidSettings where they name none, and with StoreUnavailable for a secret.
    """
    given.check_names_store()
    if not given.store_secret:
        return Place(given.store)
    from duecourse.adapters.aws.secret import ManagedSecret
    from duecourse.adapters.redis.login import Login

    secret = ManagedSecret("DUECOURSE_STORE_SECRET", given.store_secret, _check_server)
    return Place(secret.value(), Login(secret))


def _check_server(url: str) -> str:
    if split(check_store(url)).scheme in WITHOUT_BELLS:
        raise ValueError("must be the URL of a Redis: no other process can reach this store")
    return url


def open_client(given: Settings) -> "Client":
    """Client of the Redis that the settings name. Raises as `place_of`, and StoreUnavailable."""
    from duecourse.adapters.redis.connect import connect

    return connect(*place_of(given))


def open_store(given: Settings, place: Place | None = None, clock: Clock | None = None) -> Store:
    """The ledger that the settings name, at its `place` if that is known. Raises as `place_of`.

    `clock` is in place of this machine's, for a ledger in memory. Raises StoreUnavailable where a cluster does not
    answer.
    """
    quotas = as_text(given.tenant_quotas)
    sharding, deaths, most = Sharding(given.shards), bool(given.dead_target), given.tenant_max_queues
    if given.store.startswith("memory://"):
        from duecourse.adapters.embedded.store import MemoryStore

        return MemoryStore(clock, sharding, deaths=deaths, max_queues=most, quotas=quotas)
    if given.store.startswith("leveldb://"):
        from duecourse.adapters.embedded.leveldb import LevelDisk
        from duecourse.adapters.embedded.store import EmbeddedStore

        disk = LevelDisk(given.store.removeprefix("leveldb://"))
        return EmbeddedStore(sharding=sharding, deaths=deaths, max_queues=most, quotas=quotas, disk=disk)
    from duecourse.adapters.redis.connect import connect
    from duecourse.adapters.redis.store import RedisStore

    client = connect(*(place or place_of(given)))
    return RedisStore(
        client,
        given.namespace,
        sharding=sharding,
        wait=given.wait,
        deaths=deaths,
        max_queues=most,
        quotas=quotas,
    )


def logged(store: Store, given: Settings) -> Store:
    """The store, with a line of log for what happens to tasks where the settings ask for it."""
    if given.log_tasks == "off":
        return store
    from duecourse.adapters.logged_store import logged as with_log

    return with_log(store)


def open_bells(given: Settings, place: Place | None = None) -> BellServers:
    """The bells of the ledger that the settings name, at its `place` if that is known. Raises as `place_of`.

    Raises InvalidSettings where it has none.
    """
    url, login = place or place_of(given)
    scheme = split(url).scheme
    if scheme in WITHOUT_BELLS:
        problem = f"must be a Redis: a ledger at {scheme}:// has no bells, so there are no rings to serve"
        raise InvalidSettings([FieldError("DUECOURSE_STORE", problem)])
    from duecourse.adapters.redis.bells import RedisBells

    watched = Watchlist([one.pattern for one in given.watch])
    return RedisBells(url, given.namespace, events=given.events == "on", watched=watched, login=login)
