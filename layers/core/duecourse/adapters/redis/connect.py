"""Clients of one Redis, of a Sentinel's primary and of a cluster, by a store's URL."""

import random
import time
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import parse_url
from redis.exceptions import RedisClusterException
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from duecourse.adapters.redis.lines import QuickPool
from duecourse.adapters.redis.login import Login, RenewingPool, renewing
from duecourse.adapters.redis.nodes import SILENT, NodePool
from duecourse.domain.address import REDIS_PORT, SENTINEL_PORT, nodes_of, split, without_login
from duecourse.errors import StoreUnavailable

Client: TypeAlias = redis.Redis | RedisCluster

CLUSTER = {"redis-cluster": "redis", "rediss-cluster": "rediss"}
SENTINEL = "redis+sentinel"
ANSWER_S = 3.0
"""Time that a caller waits for an answer; a script's request is valid for so long (server_time.py)."""
ONCE = Retry(NoBackoff(), 0)
"""No command is sent again by the client itself: scripts.py decides which may be."""


ASK_S = 1.0
"""Time between two questions to the Sentinels about where the primary is."""
LONGEST_ASK_S = 30.0
"""The longest, while they do not answer: who asks waits for that."""
SENTINEL_S = 1.0
"""Time that a Sentinel has for an answer before another one is asked."""


def open_client(url: str, login: Login | None = None, **timeouts: float) -> Client:
    """A client that sends each command once; of a cluster, one that has seen it.

    A cluster's follows redirections, for what was redirected has not been done. With `login`, that logs in, and not the
    URL. Raises StoreUnavailable.
    """
    scheme = split(url).scheme
    options: dict[str, Any] = {"protocol": 2, **timeouts}
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
        pool.connection_class = renewing(pool.connection_class)
    return client


def connect(url: str, login: Login | None = None) -> Client:
    """A client that gives up after ANSWER_S, and never repeats a command by itself: a claim is not repeatable.

    With the repeats of `Scripts.call`, an absent server is known within 10 s: less than any function's timeout.
    Raises StoreUnavailable if no node of a cluster answers.
    """
    return open_client(url, login, socket_timeout=ANSWER_S, socket_connect_timeout=2)


def check_place(pool: Any, connection: Any) -> None:
    """Return if a connection that listens leads to a primary that answers, as far as is known. Raises as redis-py."""
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
    """The client of each primary, those last that are known not to answer."""
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


def learn(client: Client) -> None:
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
