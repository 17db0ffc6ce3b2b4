"""Eviction: a server that is full may remove keys, and with them tasks."""

import redis

EVICTS_ALL = "allkeys-"
"""Beginning of the policies that remove any key. The others remove keys with a time to live at most, such as bells."""


def warning(server: redis.Redis) -> str:
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
