"""Servers with a user who has the rights that the pages give, and no more."""

import shlex
from typing import Any

import redis

from duecourse.ledger.redis_acl import USER, Rights
from tests.support.redis_cluster import ClusterServers
from tests.support.redis_server import FLOOR, RedisServer

PASSWORD = "a-login"
NEEDLESS = {"client", "client|setinfo"}
"""Names of what the client library sends at each connection, and needs no answer to."""


def apply(client: redis.Redis, rights: Rights) -> None:
    """Make the user at one server by the line, as an operator does in redis-cli."""
    client.execute_command(*shlex.split(rights.line(PASSWORD)))


def rights_on(version: str, **given: Any) -> Rights:
    """Rights for a server of this version."""
    return Rights(reads_apart=version != FLOOR, **given)


def logged_in(server: RedisServer, rights: Rights) -> str:
    """The URL of a server by which its user, who has these rights now, logs in."""
    with server.client() as client:
        apply(client, rights)
        client.acl_log_reset()
    return server.url.replace("://", f"://{USER}:{PASSWORD}@")


def logged_in_to_each(cluster: ClusterServers, rights: Rights) -> str:
    """The same of a cluster, where each server has its own users."""
    for port in cluster.ports:
        with cluster.node(port) as node:
            apply(node, rights)
    return cluster.url.replace("://", f"://{USER}:{PASSWORD}@")


def refused(server: RedisServer) -> set[str]:
    """The commands, keys and channels that the server has refused to the user, who may have gone on without."""
    with server.client(decode_responses=True) as client:
        return {entry["object"] for entry in client.acl_log() if entry["username"] == USER} - NEEDLESS
