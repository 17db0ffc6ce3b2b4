"""Signatures of webhooks (Standard Webhooks): made here for each delivery, and verified by those who receive one."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from hmac import compare_digest

from standardwebhooks import Webhook

from duecourse.errors import WrongSignature
from duecourse.guard.signing_secrets import check_secret

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
TOLERANCE_S = 300.0
SECONDS = re.compile(r"[0-9]{1,11}")


def sign(id: str, at: int, body: bytes, secrets: Sequence[str]) -> str:
    """The header `webhook-signature`: one signature for each secret. `at` is `webhook-timestamp`, in epoch seconds."""
    sent_at, text = datetime.fromtimestamp(at, UTC), body.decode()
    return " ".join(Webhook(secret).sign(id, sent_at, text) for secret in secrets)


def verify(
    body: bytes | str,
    headers: Mapping[str, str],
    secrets: str | Sequence[str],
    tolerance: float = TOLERANCE_S,
    now: Callable[[], float] = time.time,
) -> str:
    """Return the `webhook-id` of a request that a holder of one of these secrets signed within `tolerance` seconds.

    `body` is the request's body as it came, not parsed and written again. Several attempts have one id: keep it, and
    work each id once. Raises WrongSignature for any other request, and ValueError where a secret is malformed.
    """
    known = [check_secret(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    if not known:
        raise ValueError("give at least one secret")
    # Frameworks may have bytes, or lists of values: those are no header of ours, and are missing.
    given = {name.lower(): one for name, one in headers.items() if isinstance(name, str) and isinstance(one, str)}
    id, sent_at, signatures = (given.get(name, "") for name in (ID, TIMESTAMP, SIGNATURE))
    # With a dot in it, the signed text could be cut elsewhere, into another time and another body.
    if not id or "." in id:
        raise WrongSignature(f"{ID} is missing or has a dot in it")
    if not SECONDS.fullmatch(sent_at) or not abs(now() - int(sent_at)) <= tolerance:
        raise WrongSignature(f"{TIMESTAMP} is missing, too old or too new")
    if not _is_signed(signatures, _expected(id, int(sent_at), body, known)):
        raise WrongSignature(f"no signature in {SIGNATURE} fits this body and secret")
    return id


def _expected(id: str, at: int, body: bytes | str, secrets: Sequence[str]) -> list[bytes]:
    try:
        return sign(id, at, body.encode() if isinstance(body, str) else body, secrets).encode().split()
    except UnicodeError:
        raise WrongSignature("the body is not UTF-8") from None


def _is_signed(signatures: str, expected: Sequence[bytes]) -> bool:
    found = signatures.encode(errors="replace").split()
    return any([compare_digest(one, other) for one in found for other in expected])  # noqa: C419 - each is compared
