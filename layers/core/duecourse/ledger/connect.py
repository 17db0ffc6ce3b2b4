"""Clients of one Redis, of a Sentinel's primary and of a cluster, by a store's URL and its login."""

import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

import redis
from hiredis import pack_command
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import ConnectionPool, parse_url
from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError, RedisClusterException, ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from duecourse.base.secret_cache import Secret
from duecourse.errors import StoreUnavailable
from duecourse.ledger.address import REDIS_PORT, SENTINEL_PORT, nodes_of, split, without_login
from duecourse.ledger.script_codec import Argument
from duecourse.ledger.task import RetryPolicy, ceiling_ms

# Commands sent to Redis directly, past the layers that redis-py puts around each.

MOST_AT_HAND = 8
"""Maximum number of idle connections that a QuickPool keeps; redis-py's own pool keeps the others."""


class QuickPool(ConnectionPool):
    """A pool that hands out the last returned connection, without redis-py's bookkeeping.

    To redis-py, connections at hand are in use; one that is not quiet goes back to it, to be connected again.
    """

    _at_hand: deque[Any]

    def reset(self) -> None:
        """Start with no connections, in a forked child too: those of its parent stay its parent's."""
        self._at_hand = deque()
        super().reset()

    def get_connection(self, *command: Any, **options: Any) -> Any:
        """An open connection without unread bytes."""
        if self.pid == os.getpid():  # else it is reset
            try:
                connection = self._at_hand.pop()
            except IndexError:
                return super().get_connection(*command, **options)
            if _quiet(connection):
                return connection
            connection.disconnect()
            super().release(connection)
        return super().get_connection(*command, **options)

    def release(self, connection: Any) -> None:
        """Return a connection."""
        ours = connection.pid == self.pid == os.getpid() and connection not in self._at_hand
        if ours and len(self._at_hand) < MOST_AT_HAND:
            self._at_hand.append(connection)
        else:
            super().release(connection)

    def disconnect(self, inuse_connections: bool = True) -> None:
        """Close the connections."""
        if self.pid == os.getpid():
            with suppress(IndexError):  # other threads take from it too
                while True:
                    super().release(self._at_hand.pop())
        super().disconnect(inuse_connections)


PLAIN = (QuickPool, ConnectionPool)
"""Pools all of whose connections lead to the one server."""


def _fit(connection: Any) -> bool:
    """True if it is open, and may stay so: redis-py 6 has no words for either."""
    is_open = getattr(connection, "is_connected", getattr(connection, "_sock", None) is not None)
    return bool(is_open) and not getattr(connection, "should_reconnect", bool)()


def _quiet(connection: Any) -> bool:
    """True if there is nothing to read: else the server has closed it, or a late answer has come that nobody wants."""
    try:
        return _fit(connection) and not connection.can_read()
    except (redis.ConnectionError, redis.TimeoutError, OSError):
        return False
    except (TypeError, ValueError):
        return False  # closed by another thread meanwhile: redis-py then looks at a socket that is gone


def is_plain(client: Any) -> bool:
    """True if all its commands go to one server, known before the first one."""
    return type(getattr(client, "connection_pool", None)) in PLAIN


def execute(client: Any, *command: Argument) -> Any:
    """Answer of the server. Raises the errors of the client itself.

    A cluster's client, which knows the node of a key, and a Sentinel's, which knows the primary, send it themselves.
    """
    if not is_plain(client):
        return client.execute_command(*command)
    pool = client.connection_pool
    connection = pool.get_connection()
    try:
        connection.send_packed_command((pack_command(command),))  # type: ignore[arg-type]
        return connection.read_response()
    except ResponseError:
        raise
    except BaseException:
        connection.disconnect()  # an answer that comes late must not be taken for the next one
        raise
    finally:
        pool.release(connection)


def execute_pipelined(client: Any, commands: Iterable[Sequence[Argument]]) -> Iterator[Any]:
    """Answers of a plain client's server to the commands, each ResponseError among them.

    While the server runs one command, the answer to the one before is read, and the next is made and sent.
    """
    connection = client.connection_pool.get_connection()
    try:
        sent = False
        for command in commands:
            connection.send_packed_command((pack_command(command),))  # type: ignore[arg-type]
            if sent:
                yield _answer(connection)
            sent = True
        if sent:
            yield _answer(connection)
    except BaseException:
        connection.disconnect()
        raise
    finally:
        client.connection_pool.release(connection)


def _answer(connection: Any) -> Any:
    """The next answer, or its error as a value: later answers must be read all the same."""
    try:
        return connection.read_response()
    except ResponseError as refused:
        return refused


# Connections to the nodes of a cluster: while a node does not answer, its commands fail at once.
#
# Otherwise each command for a frozen node would wait for its timeout and delay its caller's work on other nodes.

TRIAL_S = 0.25
"""Time that a node has to answer a trial; the caller that makes the trial waits for it."""
PAUSES = RetryPolicy(backoff_ms=200, max_backoff_ms=2_000)
"""Pauses between trials of a node that does not answer."""
SILENT = "the node has not answered, and is tried again within seconds"


class Outage:
    """State of one node, shared by its connections and threads: whether it answers, and when it is tried again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._trial_at = 0.0

    @property
    def lasts(self) -> bool:
        """True if the node did not answer when it was last asked."""
        return self._failures > 0

    def note(self) -> None:
        """Note that a command or a trial had no answer."""
        with self._lock:
            self._failures += 1
            self._trial_at = time.monotonic() + ceiling_ms(PAUSES, self._failures) / 1000

    def end(self) -> None:
        """Note that a trial was answered."""
        self._failures = 0

    def take_trial(self) -> bool:
        """True for one caller each time that a trial is due."""
        with self._lock:
            is_due = time.monotonic() >= self._trial_at
            if is_due:
                self._trial_at = time.monotonic() + TRIAL_S
            return is_due


class OutageConnection:
    """Base of connections that report to `outage` when their server does not answer."""

    def __init__(self, *arguments: Any, outage: Outage | None = None, **options: Any) -> None:
        self._outage = outage
        super().__init__(*arguments, **options)

    def connect_check_health(self, *arguments: Any, **options: Any) -> None:
        """Connect and log in. Raises what redis-py does."""
        try:
            super().connect_check_health(*arguments, **options)  # type: ignore[misc]
        except AuthenticationError:
            raise  # it answers
        except (redis.ConnectionError, redis.TimeoutError):
            self._note()
            raise

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        """Read an answer. Raises what redis-py does."""
        try:
            return super().read_response(*arguments, **options)  # type: ignore[misc]
        except redis.TimeoutError:
            self._note()
            raise

    def _note(self) -> None:
        if self._outage:
            self._outage.note()


@cache
def with_outage(connection_class: type) -> type:
    """Subclass of a class of connections that is an OutageConnection, too."""
    return type(f"Observed{connection_class.__name__}", (OutageConnection, connection_class), {})


class NodePool(ConnectionPool):
    """Connections to one node.

    While the node does not answer, one caller now and then tries it. All others get redis.ConnectionError at once.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.connection_class = with_outage(self.connection_class)
        self._outage = self.connection_kwargs["outage"] = Outage()

    @property
    def is_away(self) -> bool:
        """True if the node did not answer when it was last asked."""
        return self._outage.lasts

    def get_connection(self, *command: Any, **options: Any) -> Any:
        """A connection, where the node is not known to be away."""
        if self._outage.lasts and not self._answers():
            raise redis.ConnectionError(SILENT)
        return super().get_connection(*command, **options)

    def _answers(self) -> bool:
        if not self._outage.take_trial():
            return False
        bounds = {"socket_timeout": TRIAL_S, "socket_connect_timeout": TRIAL_S, "outage": None}
        trial: Any = self.connection_class(**{**self.connection_kwargs, **bounds})
        try:
            trial.connect()
            trial.send_command("PING")
            trial.read_response()
        except redis.ResponseError:
            pass  # it answers
        except (redis.RedisError, OSError):
            self._outage.note()
            return False
        finally:
            trial.disconnect()
        self._outage.end()
        return True


# The login of a store's URL that is a secret: used by every new connection, read again once it was rejected.

log = logging.getLogger("duecourse.ledger")


class Login(CredentialProvider):
    """User and password of the URL in a secret.

    A newer URL of another server is not taken: its password is none of this server's business.
    """

    def __init__(self, secret: Secret) -> None:
        self._secret = secret
        self._url = secret.value()

    def get_credentials(self) -> tuple[str] | tuple[str, str] | tuple[()]:  # type: ignore[override]
        """The arguments of AUTH, none for a URL without a login."""
        login: Any = parse_url(f"redis://{split(self._url).login or ''}@localhost")  # type: ignore[no-untyped-call]
        user, password = login.get("username"), login.get("password")
        if user:
            return user, password or ""
        return (password,) if password else ()

    def current(self) -> str:
        """The URL by which a connection would log in now."""
        return self._url

    def renew(self, rejected: str) -> bool:
        """Read the URL again after the login by `rejected` failed; True if there is another one to try."""
        if self._url != rejected:
            return True  # another thread has read it
        found = self._secret.renewed(rejected)
        if found and _is_elsewhere(found, rejected):
            found = self._secret.renewed(found) or found  # kept by the secret: somebody may have mended it since
        if found is None or found == rejected:
            return False
        if _is_elsewhere(found, rejected):
            log.warning("the secret with the store's URL names another server now: deploy again, to use that one")
            return False
        self._url = found
        return True


def _is_elsewhere(found: str, rejected: str) -> bool:
    return split(found).place != split(rejected).place


class RenewingConnection:
    """Part of a connection whose `credential_provider` is a Login: a rejected login is tried once more, if renewed."""

    credential_provider: Login

    def connect_check_health(self, *arguments: Any, **options: Any) -> None:
        """Connect and log in. Raises what redis-py does."""
        used = self.credential_provider.current()
        try:
            super().connect_check_health(*arguments, **options)  # type: ignore[misc]
        except AuthenticationError:
            if not self.credential_provider.renew(used):
                raise
            super().connect_check_health(*arguments, **options)  # type: ignore[misc]


@cache
def with_renewal(connection_class: type) -> type:
    """The same class of connections, with a login that is renewed."""
    return type(f"Renewing{connection_class.__name__}", (RenewingConnection, connection_class), {})


class RenewingPool(NodePool):
    """A pool of such connections, for a cluster's nodes: their class comes with each URL."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.connection_class = with_renewal(self.connection_class)


# Clients of one Redis, of a Sentinel's primary and of a cluster, by a store's URL.

Client: TypeAlias = redis.Redis | RedisCluster

CLUSTER = {"redis-cluster": "redis", "rediss-cluster": "rediss"}
SENTINEL = "redis+sentinel"
ANSWER_S = 3.0
"""Time that a caller waits for an answer; a script's request is valid for so long (`ServerTime` of script_calls.py)."""
UNBOUNDED = 2**31
"""Connections that a pool may open: a thread needs one at a time, so the number of threads is the bound."""
ONCE = Retry(NoBackoff(), 0)
"""No command is sent again by the client itself: script_calls.py decides which may be."""


ASK_S = 1.0
"""Time between two questions to the Sentinels about where the primary is."""
LONGEST_ASK_S = 30.0
"""The longest, while they do not answer: who asks waits for that."""
SENTINEL_S = 1.0
"""Time that a Sentinel has for an answer before another one is asked."""


def open_client(url: str, login: Login | None = None, **timeouts: float) -> Client:
    """A client that sends each command once; for a cluster, it has read the slots.

    A cluster's client follows redirections: a redirected command was not run. `login` replaces the login of the URL.
    Raises StoreUnavailable.
    """
    scheme = split(url).scheme
    # Newer releases of redis-py open at most 100 by default: to further threads, the store would not answer.
    options: dict[str, Any] = {"protocol": 2, "max_connections": UNBOUNDED, **timeouts}
    if scheme != "unix":
        options["socket_keepalive"] = True
    if login:
        url = without_login(url)
    if scheme == SENTINEL:
        return _sentinel(url, login, options)
    if login:
        options["credential_provider"] = login
    if scheme in CLUSTER:
        return _cluster(url, options | {"connection_pool_class": RenewingPool if login else NodePool})
    return _renewing(redis.Redis.from_pool(QuickPool.from_url(url, retry=ONCE, **options)), login)


def _renewing(client: redis.Redis, login: Login | None) -> redis.Redis:
    if login:
        pool = client.connection_pool  # which has no connection yet
        pool.connection_class = with_renewal(pool.connection_class)
    return client


def connect(url: str, login: Login | None = None) -> Client:
    """A client that gives up after ANSWER_S, and never repeats a command by itself: a claim is not repeatable.

    With the repeats of `Scripts.call`, an absent server is known within 10 s: less than any function's timeout.
    Raises StoreUnavailable if no node of a cluster answers.
    """
    return open_client(url, login, socket_timeout=ANSWER_S, socket_connect_timeout=2)


def check_primary_address(pool: Any, connection: Any) -> None:
    """Return if a listening connection leads to a primary that is known to answer. Raises as redis-py."""
    if isinstance(pool, ServicePool):
        pool.check(connection)
    outage = pool.connection_kwargs.get("outage")
    if outage and outage.lasts:
        raise redis.ConnectionError(SILENT)


def is_cluster(url: str) -> bool:
    """True if a store's URL names a cluster."""
    return split(url).scheme in CLUSTER


def node_of(client: Client, key: str) -> redis.Redis:
    """The client of the one server that `key` is on, as far as this client knows."""
    if isinstance(client, redis.Redis):
        return client
    cluster: Any = client
    return cast(redis.Redis, cluster.get_redis_connection(cluster.get_node_from_key(key)))


def name_of_node(client: Client, key: str) -> str:
    """Name of a cluster's node that `key` is on, as far as this client knows; "nobody" where no node has its slot."""
    cluster: Any = client
    try:
        return str(cluster.get_node_from_key(key).name)
    except RedisClusterException:
        return "nobody"


def primaries_of(client: Client) -> dict[str, redis.Redis]:
    """The client of each primary that is known, by its name; of one server that, by none."""
    if isinstance(client, redis.Redis):
        return {"": client}
    cluster: Any = client
    return {node.name: cluster.get_redis_connection(node) for node in cluster.get_primaries()}


def answering_first(client: Client) -> list[redis.Redis]:
    """The client of each primary; primaries that are known not to answer come last."""
    found = primaries_of(client).values()
    return sorted(found, key=lambda one: isinstance(pool := one.connection_pool, NodePool) and pool.is_away)


def servers(client: Client) -> list[redis.Redis]:
    """A client of each server that `client` knows: of one, itself."""
    if isinstance(client, redis.Redis):
        return [client]
    cluster: Any = client
    return [node.redis_connection for node in cluster.get_nodes() if node.redis_connection]


def drop_idle(client: Client) -> None:
    """Close the connections that are not in use."""
    for one in servers(client):
        one.connection_pool.disconnect(inuse_connections=False)


def refresh_slots(client: Client) -> None:
    """Ask a cluster where its slots are. Raises what its nodes do, RedisClusterException where none answers."""
    if isinstance(client, RedisCluster):
        client.nodes_manager.initialize()


class AnyNodeCluster(RedisCluster):
    """A cluster's client that opens while some of the nodes do not answer."""

    def command(self, **kwargs: Any) -> Any:
        """The commands that a node knows, as redis-py wants them when it opens.

        It would ask the node of the lowest slot alone, and fail where that one is away.
        """
        cluster: Any = self
        nodes = random.sample(primaries := cluster.get_primaries(), len(primaries))
        for place, node in enumerate(nodes, start=1):
            try:
                return cluster.get_redis_connection(node).command(**kwargs)
            except (redis.ConnectionError, redis.TimeoutError):
                if place == len(nodes):
                    raise
        raise RedisClusterException("the cluster has no primaries")


def _cluster(url: str, options: dict[str, Any]) -> RedisCluster:
    given = split(url)
    (host, port), *others = nodes_of(url, REDIS_PORT)
    user = "" if given.login is None else f"{given.login}@"
    first = f"{CLUSTER[given.scheme]}://{user}{f'[{host}]' if ':' in host else host}:{port}/?{given.query}"
    nodes = [ClusterNode(*other) for other in others]  # type: ignore[no-untyped-call]
    try:
        # Slots whose primary has gone are still somebody's: the others' shards go on meanwhile.
        return AnyNodeCluster.from_url(
            first, startup_nodes=nodes, retry=ONCE, require_full_coverage=False, reinitialize_steps=1, **options
        )
    except (redis.RedisError, RedisClusterException) as error:
        raise StoreUnavailable(f"The store does not answer: {error}") from error


class ServicePool(SentinelConnectionPool):
    """Connections to a service's primary, and to the sentinels that know which server that is.

    The pool asks them once a second while its connections are used. A frozen server that wakes after a failover still
    acts as the primary, and connections to it work as before.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)  # type: ignore[no-untyped-call]
        self._ask_at = time.monotonic() + ASK_S
        self._failures = 0

    def get_connection(self, *command: Any, **options: Any) -> Any:
        """A connection to the server that is the primary by now."""
        self.look()
        return super().get_connection(*command, **options)

    def look(self) -> None:
        """Ask where the primary is, if that is due; connections to another server that are not in use are closed."""
        if time.monotonic() < self._ask_at:
            return
        self._ask_at = time.monotonic() + ASK_S
        try:
            self.get_master_address()  # type: ignore[no-untyped-call]
            self._failures = 0
        except (redis.ConnectionError, redis.TimeoutError):  # the primary may be there all the same
            self._failures += 1
            self._ask_at = time.monotonic() + min(ASK_S * 2**self._failures, LONGEST_ASK_S)

    def check(self, connection: Any) -> None:
        """Return if a connection that is in use leads to the primary. Raises redis.ConnectionError."""
        self.look()
        if self.master_address and (connection.host, connection.port) != self.master_address:
            raise redis.ConnectionError("the Sentinels name another primary by now")

    def disconnect(self, inuse_connections: bool = True) -> None:
        """Close the connections, the sentinels' too."""
        super().disconnect(inuse_connections)
        for sentinel in self.sentinel_manager.sentinels:
            sentinel.connection_pool.disconnect(inuse_connections)


def _sentinel(url: str, login: Login | None, options: dict[str, Any]) -> redis.Redis:
    given = split(url)
    service, _, db = given.path.strip("/").partition("/")
    parsed: Any = parse_url(f"redis://{given.login or ''}@localhost")  # type: ignore[no-untyped-call]
    names = {name: parsed[name] for name in ("username", "password") if parsed.get(name)}
    if login:
        names = {"credential_provider": login}
    sentinels = nodes_of(url, SENTINEL_PORT)
    quick = {"socket_timeout": SENTINEL_S, "socket_connect_timeout": SENTINEL_S}
    manager = Sentinel(sentinels, sentinel_kwargs={"retry": ONCE, **options, **quick}, retry=ONCE, **options)  # type: ignore[no-untyped-call]
    primary = manager.master_for(  # type: ignore[no-untyped-call]
        unquote(service), connection_pool_class=ServicePool, db=int(db or 0), **names
    )
    return _renewing(cast(redis.Redis, primary), login)


# Eviction: a server that is full may remove keys, and with them tasks.

EVICTS_ALL = "allkeys-"
"""Beginning of the policies that remove any key. The others remove keys with a time to live at most, such as bells."""


def eviction_warning(server: redis.Redis) -> str:
    """Warning for a server that may remove any key, "" for another, and for one that does not show its policy.

    Raises RedisError.
    """
    try:
        policy = str(server.info("memory").get("maxmemory_policy", ""))
    except redis.ResponseError:
        return ""
    if not policy.startswith(EVICTS_ALL):
        return ""
    return (
        f"TASKS CAN BE LOST: the store's maxmemory-policy is {policy}, which removes any key once memory is full. "
        "Set noeviction at the server: redis-cli config set maxmemory-policy noeviction"
    )
