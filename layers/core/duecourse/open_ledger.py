"""Store and bells of the ledger that the settings name."""

from typing import TYPE_CHECKING, NamedTuple

from duecourse.base.times import Clock
from duecourse.errors import FieldError, InvalidSettings
from duecourse.ledger.address import WITHOUT_BELLS, check_store, split
from duecourse.ledger.bells import BellServers
from duecourse.ledger.queue import quotas_text
from duecourse.ledger.sharding import Sharding
from duecourse.ledger.watched_keys import Watchlist
from duecourse.settings import Settings

if TYPE_CHECKING:
    from duecourse.ledger.connect import Client, Login
    from duecourse.ledger.operations.ledger import Ledger


class StoreLocation(NamedTuple):
    """Location of a ledger: its URL and, where that is a secret, the login in it."""

    url: str
    login: "Login | None" = None


def location_of(given: Settings) -> StoreLocation:
    """Location of the ledger that the settings name.

    Raises InvalidSettings where they name none, and with StoreUnavailable for a secret.
    """
    given.check_names_store()
    if not given.store_secret:
        return StoreLocation(given.store)
    from duecourse.ledger.connect import Login
    from duecourse.services.secrets import ManagedSecret

    secret = ManagedSecret("DUECOURSE_STORE_SECRET", given.store_secret, _check_server)
    return StoreLocation(secret.value(), Login(secret))


def _check_server(url: str) -> str:
    if split(check_store(url)).scheme in WITHOUT_BELLS:
        raise ValueError("must be the URL of a Redis: no other process can reach this store")
    return url


def open_client(given: Settings) -> "Client":
    """Client of the Redis that the settings name. Raises as `location_of`, and StoreUnavailable."""
    from duecourse.ledger.connect import connect

    return connect(*location_of(given))


def open_ledger(given: Settings, place: StoreLocation | None = None, clock: Clock | None = None) -> "Ledger":
    """The ledger that the settings name, at its `place` if that is known. Raises as `location_of`.

    `clock` is in place of this machine's, for a ledger in memory. Raises StoreUnavailable where a cluster does not
    answer.
    """
    quotas = quotas_text(given.tenant_quotas)
    sharding, deaths, most = Sharding(given.shards), bool(given.dead_target), given.tenant_max_queues
    if given.store.startswith("memory://"):
        from duecourse.ledger.embedded.ledger import EmbeddedLedger

        return EmbeddedLedger(clock, sharding, deaths=deaths, max_queues=most, quotas=quotas)
    if given.store.startswith("leveldb://"):
        from duecourse.ledger.embedded.ledger import EmbeddedLedger
        from duecourse.ledger.embedded.leveldb import LevelDisk

        disk = LevelDisk(given.store.removeprefix("leveldb://"))
        return EmbeddedLedger(sharding=sharding, deaths=deaths, max_queues=most, quotas=quotas, disk=disk)
    from duecourse.ledger.connect import connect
    from duecourse.ledger.operations.ledger import Ledger

    client = connect(*(place or location_of(given)))
    return Ledger(
        client,
        given.namespace,
        sharding=sharding,
        wait=given.wait,
        deaths=deaths,
        max_queues=most,
        quotas=quotas,
    )


def logged(ledger: "Ledger", given: Settings) -> "Ledger":
    """The ledger, with a log line for each change of a task where the settings say so."""
    if given.log_tasks == "off":
        return ledger
    from duecourse.ledger.task_log_lines import TaskLog

    return ledger.with_log(TaskLog())


def open_bells(given: Settings, place: StoreLocation | None = None) -> BellServers:
    """The bells of the ledger that the settings name, at its `place` if that is known. Raises as `location_of`.

    Raises InvalidSettings where it has none.
    """
    url, login = place or location_of(given)
    scheme = split(url).scheme
    if scheme in WITHOUT_BELLS:
        problem = f"must be a Redis: a ledger at {scheme}:// has no bells, so there are no rings to serve"
        raise InvalidSettings([FieldError("DUECOURSE_STORE", problem)])
    from duecourse.ledger.redis_bells import RedisBells

    watched = Watchlist([one.pattern for one in given.watch])
    return RedisBells(url, given.namespace, events=given.events == "on", watched=watched, login=login)
