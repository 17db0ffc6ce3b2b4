"""Signatures of what duecourse delivers, by the secrets of its tenant."""

from collections.abc import Callable

from duecourse.domain.signing import Secrets
from duecourse.domain.task import DEFAULT_TENANT
from duecourse.ports.http import HttpRequest
from duecourse.webhooks import ID, SIGNATURE, TIMESTAMP, sign


class Signing:
    """Signs requests by the secrets that `secrets` answers at each; where there is none for a tenant, its are unsigned.

    Raises SecretUnavailable.
    """

    def __init__(self, secrets: Callable[[], Secrets]) -> None:
        self._secrets = secrets

    def __call__(self, tenant: str, request: HttpRequest) -> HttpRequest:
        """The request with its signature, which is of its body as it is sent."""
        known = self._secrets()
        secrets = known.get(tenant) or known.get(DEFAULT_TENANT)
        if not secrets:
            return request
        headers = request.headers
        signature = sign(headers[ID], int(headers[TIMESTAMP]), request.body or b"", secrets)
        return request._replace(headers={**headers, SIGNATURE: signature})
