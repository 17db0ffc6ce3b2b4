"""Clients of AWS services, with timeouts, each made on first use."""

import logging
import threading
from functools import cache, partial
from typing import Any

_making = threading.Lock()
CONNECTIONS = 64
CONNECT_TIMEOUT_S = 3.0

# Lambda's root logger lets INFO through, where botocore tells of each client which credentials it found.
logging.getLogger("botocore").setLevel(logging.WARNING)


def make_client(
    service: str, *, attempts: int, read_timeout_s: float, connect_timeout_s: float = CONNECT_TIMEOUT_S
) -> Any:
    """A boto3 client for `service`, safe for threads; region, credentials and endpoint come from AWS's own variables.

    `attempts` counts the first one: 1 means that nothing is sent twice. Raises botocore's BotoCoreError.
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
        return boto3.client(service, config=config)  # type: ignore[call-overload]


class LazyClient:
    """Such a client, made at its first use: to make one takes a tenth of a second, and few processes use it."""

    def __init__(self, service: str, **options: Any) -> None:
        # Two threads at once may make one each: either serves.
        self._made = cache(partial(make_client, service, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made(), name)
