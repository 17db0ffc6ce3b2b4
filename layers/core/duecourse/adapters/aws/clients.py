"""Clients of AWS services, with timeouts, each made on first use."""

import logging
import os
import threading
from functools import cache
from typing import Any

_making = threading.RLock()
CONNECTIONS = 64
CONNECT_TIMEOUT_S = 3.0

# A fork waits for the client that a thread makes: in the child that thread is not there to end it.
os.register_at_fork(before=_making.acquire, after_in_parent=_making.release, after_in_child=_making.release)

# Lambda's root logger lets INFO through, where botocore tells of each client which credentials it found.
logging.getLogger("botocore").setLevel(logging.WARNING)


def make_client(
    service: str,
    *,
    attempts: int,
    read_timeout_s: float,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    region: str = "",
) -> Any:
    """A boto3 client for `service`, safe for threads; credentials and endpoint come from AWS's own variables.

    So does the region, unless it is given. `attempts` counts the first one: 1 means that nothing is sent twice. Raises
    botocore's BotoCoreError.
    """
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=connect_timeout_s,
        read_timeout=read_timeout_s,
        retries={"total_max_attempts": attempts, "mode": "standard"},
        max_pool_connections=CONNECTIONS,
        tcp_keepalive=True,
    )
    # boto3's default session, made by the first call, is not safe for threads; clients are.
    with _making:
        return boto3.client(service, region_name=region or None, config=config)  # type: ignore[call-overload]


class LazyClient:
    """Such a client, made at its first use: to make one takes a tenth of a second, and few processes use it.

    A forked child makes one of its own: on its parent's connections each would read answers to the other.
    """

    def __init__(self, service: str, **options: Any) -> None:
        # Two threads at once may make one each: either serves.
        self._made = cache(lambda _pid: make_client(service, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made(os.getpid()), name)
