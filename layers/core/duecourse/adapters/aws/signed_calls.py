"""Signed calls to one service of AWS: its client's address and credentials, without its models.

A call of botocore's own client takes four times as long as signing and sending, and a ring makes two calls, one after
the other.
"""

import os
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Timeout
from urllib3.connection import HTTPConnection

from duecourse.adapters.aws.clients import CONNECT_TIMEOUT_S, CONNECTIONS, make_client

KEEP_ALIVE = [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
WITHIN_LAMBDA = ("AWS_LAMBDA_FUNCTION_NAME", "_X_AMZN_TRACE_ID")


class SignedCalls:
    """POST requests to `service`, each sent once; safe for threads.

    Region, credentials, endpoint, certificates and proxies come from where botocore looks for them. Raises botocore's
    BotoCoreError where there is no region.
    """

    def __init__(self, service: str, read_timeout_s: float) -> None:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.session import get_session

        client, session = make_client(service, attempts=1, read_timeout_s=read_timeout_s), get_session()
        self._url = client.meta.endpoint_url.rstrip("/")
        self._signing = (client.meta.service_model.signing_name, client.meta.region_name)
        client.close()
        self._credentials = session.get_credentials()
        self.timeout = Timeout(connect=CONNECT_TIMEOUT_S, read=read_timeout_s)
        self._pools = _pools(self._url, session.get_config_variable("ca_bundle") or True)
        self._request_of, self._signer_of = AWSRequest, SigV4Auth

    def post(self, path: str, headers: Mapping[str, str], body: bytes) -> BaseHTTPResponse:
        """The answer to one request, read whole. Raises urllib3's HTTPError, or BotoCoreError without credentials."""
        url = self._url + path
        request = self._request_of("POST", url, data=body, headers={**headers, **_trace()})
        credentials: Any = self._credentials and self._credentials.get_frozen_credentials()
        self._signer_of(credentials, *self._signing).add_auth(request)  # which says so where there are none
        return self._pools.request(
            "POST",
            url,
            body=body,
            headers=dict(request.headers.items()),
            timeout=self.timeout,
            retries=False,
            redirect=False,
        )

    def close(self) -> None:
        """Give up the connections."""
        self._pools.clear()


def _pools(url: str, verify: Any) -> PoolManager:
    from botocore.httpsession import get_cert_path
    from botocore.utils import get_environ_proxies

    options: dict[str, Any] = {"maxsize": CONNECTIONS, "socket_options": KEEP_ALIVE, "ca_certs": get_cert_path(verify)}
    proxy = get_environ_proxies(url).get(urlsplit(url).scheme)
    return ProxyManager(proxy, **options) if proxy else PoolManager(**options)


def _trace() -> dict[str, str]:
    """The trace of the invocation at hand, within Lambda: by it a function that invokes itself for ever is found."""
    trace = all(name in os.environ for name in WITHIN_LAMBDA) and os.environ["_X_AMZN_TRACE_ID"]
    return {"X-Amzn-Trace-Id": quote(trace, safe="-=;:+&[]{}\"',")} if trace else {}
