"""The HTTP API at a URL: requests with a signature of AWS, with a token, or with neither."""

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from duecourse.api.authorization import Role
from duecourse.api.problems import CONTENT_TYPE, URN
from duecourse.in_place import TENANT, ApiAnswer, ApiRequest, with_tenant

from ..errors import HarnessError
from ..harness.aws import authorizer
from ..harness.aws.account import REGION
from .api import ApiClient, Document, Unavailable
from .target import LedgerTarget

SERVICE = "execute-api"
TIMEOUT_S = 30.0
TENANT_HEADER = "X-Tenant"
LIFETIME_S = 3_600.0
REDIRECTS, REJECTS, MISSING, FAILS = 300, 400, 404, 500
MESSAGE = "message"
"""Field of the answers that API Gateway gives by itself."""


class RemoteApi(ApiClient):
    """The HTTP API at a URL; with a token its bearer, else signed where AWS credentials are found.

    A function in place of the token is called for each request.
    """

    def __init__(
        self,
        url: str,
        token: str | Callable[[], str] | None,
        tenant: str | None,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            example = "https://a1b2c3.execute-api.REGION.amazonaws.com" if "://" in url else f"http://{url}"
            raise HarnessError(f"--url {url} must be the URL of an HTTP API, such as {example}")
        self._url = url.rstrip("/")
        self._token = token
        self.tenant = tenant
        self._by_header = False
        self._signer = None if token else _signer(parts.hostname, keys)
        self._http = urllib3.PoolManager(retries=False, timeout=TIMEOUT_S)
        how = "with a token" if token else f"signed as {self._signer[0]}" if self._signer else "unsigned"
        self.name = f"API {self._url} ({how})"

    def send(self, request: ApiRequest) -> ApiAnswer:
        """See HttpApi."""
        query = with_tenant(request.query, self.tenant)
        answer = self._send_once(request, query)
        if self._by_header or TENANT not in query or not _takes_no_tenant(answer):
            return answer
        # An API without a rule for tenants takes them from a header.
        self._by_header = True
        return self._send_once(request, query)

    def schedule_file_state(self) -> None:
        """See ApiClient."""

    def hidden_fields(self, queue: str, id: str) -> Mapping[str, str]:  # noqa: ARG002 - an API shows what it shows
        """See ApiClient."""
        return {}

    def _send_once(self, request: ApiRequest, query: Mapping[str, str]) -> ApiAnswer:
        given = {**request.headers}
        words = {**query}
        if self._by_header and TENANT in words:
            given[TENANT_HEADER] = words.pop(TENANT)
        url = self._url + request.path + (f"?{urlencode(words)}" if words else "")
        content = request.body or None
        headers = self._proved(request.method, url, content, given)
        try:
            answer = self._http.request(request.method, url, body=content, headers=headers)
        except HTTPError as error:
            raise Unavailable(f"{self.name} does not answer: {error}") from error
        return self._read(answer)

    def _proved(self, method: str, url: str, content: bytes | None, headers: dict[str, str]) -> dict[str, str]:
        """Headers with the proof of identity."""
        if self._token:
            headers["Authorization"] = f"Bearer {self._token if isinstance(self._token, str) else self._token()}"
        return self._signer[1](method, url, content, headers) if self._signer else headers

    def _read(self, answer: urllib3.BaseHTTPResponse) -> ApiAnswer:
        found = _document(answer.data)
        is_login = REDIRECTS <= answer.status < REJECTS
        if found is None or is_login or (answer.status < REJECTS and MESSAGE in found):
            raise Unavailable(
                f"{self.name} is not the HTTP API of duecourse: it answers {answer.status} without its JSON"
            )
        if answer.status == MISSING and not str(found.get("type")).startswith(URN):
            raise Unavailable(f"{self.name}: no duecourse API there, it answers 404")
        if answer.status >= FAILS and MESSAGE in found:
            raise Unavailable(f"{self.name} answers {answer.status}: {found[MESSAGE]}")
        headers = {name.lower(): value for name, value in answer.headers.items()}
        if MESSAGE in found:
            detail = self._gateway_message(answer.status, found)
            problem = {"type": "about:blank", "title": detail, "status": answer.status, "detail": detail}
            headers["content-type"] = CONTENT_TYPE
            return ApiAnswer(answer.status, json.dumps(problem).encode(), headers)
        return ApiAnswer(answer.status, answer.data, headers)

    def _gateway_message(self, status: int, found: Document) -> str:
        """Text of an answer of API Gateway itself, which is a message alone."""
        return f"{found[MESSAGE]} ({status} of {self.name}{self._hint(status)})"

    def _hint(self, status: int) -> str:
        unproved = status in {401, 403} and not (self._token or self._signer)
        return ": set AWS credentials or give --token" if unproved else ""


def stack_api(up: Mapping[str, Any], target: LedgerTarget) -> RemoteApi:
    """The API of the stack that is up, with the proof of identity that it demands."""
    auth, url = up.get("auth", authorizer.Auth.NONE), str(up["api"])
    if auth == authorizer.Auth.JWT:
        issue = partial(authorizer.tokens(target.folder).issue, "command", "", [Role.OPERATOR], LIFETIME_S)
        return RemoteApi(url, target.token or issue, target.tenant)
    if auth == authorizer.Auth.IAM:
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        issued = authorizer.signatures(target.folder).issue(str(Role.OPERATOR))
        return RemoteApi(url, None, target.tenant, dict(zip(names, issued, strict=True)) | {"AWS_REGION": REGION})
    return RemoteApi(url, target.token, target.tenant, {})


def _document(text: bytes) -> Document | None:
    try:
        found = json.loads(text or b"{}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _takes_no_tenant(answer: ApiAnswer) -> bool:
    return answer.is_rejection and any(
        one.get("field") == TENANT and "not a parameter" in str(one.get("problem"))
        for one in answer.document.get("errors") or ()
    )


def _signer(host: str, keys: Mapping[str, str] | None) -> tuple[str, Any] | None:
    """Id of the access key and the function that signs a request; None without credentials."""
    if keys is not None and not keys:
        return None
    try:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials
        from botocore.session import get_session
    except ImportError:  # the extra `aws` is not there: nothing is signed
        return None
    session = get_session()
    found = _given(keys, Credentials) if keys else session.get_credentials()
    if found is None:
        return None
    region = _region(host) or (keys or {}).get("AWS_REGION") or session.get_config_variable("region") or REGION

    def sign(method: str, url: str, content: bytes | None, headers: Mapping[str, str]) -> dict[str, str]:
        request = AWSRequest(method, url, data=content or b"", headers=dict(headers))
        SigV4Auth(found.get_frozen_credentials(), SERVICE, region).add_auth(request)
        return dict(request.headers.items())

    return found.access_key, sign


def _given(keys: Mapping[str, str], credentials: Any) -> Any:
    return credentials(keys["AWS_ACCESS_KEY_ID"], keys["AWS_SECRET_ACCESS_KEY"], keys["AWS_SESSION_TOKEN"])


def _region(host: str) -> str:
    """Region in the name of an endpoint of API Gateway; "" for another name."""
    words = host.split(".")
    return words[words.index(SERVICE) + 1] if SERVICE in words[:-1] else os.environ.get("AWS_REGION", "")
