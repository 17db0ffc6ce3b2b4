"""Signature Version 4: access keys of this machine, and the check of requests that they sign, in headers."""

import base64
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

from .account import ACCOUNT, REGION
from .authorizer import IdentityRejected, KeyFolder
from .events import Event, HttpRequest, joined

SERVICE = "execute-api"
ALGORITHM = "AWS4-HMAC-SHA256"
HEADER = re.compile(
    ALGORITHM + r" Credential=([A-Z0-9]+)/(\d{8})/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request, *"
    r"SignedHeaders=([a-z0-9;._-]+), *Signature=([0-9a-f]{64})"
)
STAMP = "%Y%m%dT%H%M%SZ"
SKEW_S = 300


class Credentials(NamedTuple):
    """Temporary credentials of one session."""

    access_key: str
    secret_key: str
    token: str


class _Signature(NamedTuple):
    access_key: str
    date: str
    region: str
    service: str
    headers: Sequence[str]
    signature: str


class Signatures:
    """Access keys whose secrets follow from a secret of this machine: none has to be kept."""

    def __init__(self, keys: KeyFolder) -> None:
        self._secret = keys.of_signatures()

    def issue(self, role: str) -> Credentials:
        """Credentials of a session of the role."""
        return self.of_arn(f"arn:aws:sts::{ACCOUNT}:assumed-role/{role}/local")

    def of_arn(self, arn: str) -> Credentials:
        """Credentials of a principal."""
        access_key = "ASIA" + base64.b32encode(secrets.token_bytes(10)).decode()
        token = base64.urlsafe_b64encode(arn.encode()).decode()
        return Credentials(access_key, self._secret_of(access_key, token), token)

    def authorize(self, request: HttpRequest) -> Event:
        """Identity of the caller, as an event has it. Raises IdentityRejected without a valid signature."""
        headers = joined((name, " ".join(value.split())) for name, value in request.headers)
        signed = _read(headers.get("authorization", ""))
        token, stamp = headers.get("x-amz-security-token", ""), headers.get("x-amz-date", "")
        if not (_is_current(stamp) and stamp.startswith(signed.date) and "host" in signed.headers):
            raise _forbidden()
        # Both sides hash what was received: a body that was changed on the way has another hash.
        digest = hashlib.sha256(request.body).hexdigest()
        if (signed.region, signed.service) != (REGION, SERVICE) or headers.get(
            "x-amz-content-sha256", digest
        ) != digest:
            raise _forbidden()
        expected = _sign(
            self._secret_of(signed.access_key, token), signed, stamp, _canonical(request, headers, signed, digest)
        )
        if not hmac.compare_digest(expected, signed.signature):
            raise _forbidden()
        return {"iam": _iam_identity(signed.access_key, base64.urlsafe_b64decode(token).decode())}

    def _secret_of(self, access_key: str, token: str) -> str:
        made = hmac.new(self._secret, json.dumps([access_key, token]).encode(), hashlib.sha256).digest()
        return base64.b64encode(made).decode()


def _forbidden() -> IdentityRejected:
    return IdentityRejected(403, "Forbidden")


def _read(header: str) -> _Signature:
    found = HEADER.fullmatch(header)
    if not found:
        raise _forbidden()
    access_key, date, region, service, headers, signature = found.groups()
    return _Signature(access_key, date, region, service, headers.split(";"), signature)


def _is_current(stamp: str) -> bool:
    try:
        at = datetime.strptime(stamp, STAMP).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return False
    return abs(time.time() - at) <= SKEW_S


def _canonical(request: HttpRequest, headers: Mapping[str, str], signed: _Signature, digest: str) -> str:
    pairs = sorted(tuple(pair.partition("=")[::2]) for pair in request.query.split("&") if pair)
    query = "&".join(f"{name}={value}" for name, value in pairs)
    lines = [f"{name}:{headers.get(name, '')}" for name in signed.headers]
    path = quote(request.sent_path, safe="/-_.~")
    return "\n".join([request.method, path, query, *lines, "", ";".join(signed.headers), digest])


def _sign(secret_key: str, signed: _Signature, stamp: str, canonical: str) -> str:
    scope = f"{signed.date}/{signed.region}/{signed.service}/aws4_request"
    text = "\n".join([ALGORITHM, stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{secret_key}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


def _iam_identity(access_key: str, arn: str) -> Event:
    return {
        "accessKey": access_key,
        "accountId": ACCOUNT,
        "callerId": f"AROALOCAL:{arn.rpartition('/')[2]}",
        "cognitoIdentity": None,
        "principalOrgId": "o-local",
        "userArn": arn,
        "userId": f"AROALOCAL:{arn.rpartition('/')[2]}",
    }
