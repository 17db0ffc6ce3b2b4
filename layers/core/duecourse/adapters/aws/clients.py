"""Clients of AWS services, each made on first use, with timeouts; and the translation of their errors for senders."""

import logging
import threading
from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Any

from duecourse.errors import SendFailed, SendRejected

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


@contextmanager
def sending(service: str, refusals: Set[str]) -> Iterator[None]:
    """Tell a service's errors as a Sender does: SendRejected for the codes in `refusals`, else SendFailed."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        refusal = SendRejected if error.response["Error"]["Code"] in refusals else SendFailed
        raise refusal(f"{service} did not take it: {error}") from error
    except BotoCoreError as error:
        raise SendFailed(f"{service} did not take it: {error}") from error
