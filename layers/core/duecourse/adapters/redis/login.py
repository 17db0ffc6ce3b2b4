"""The login of a store's URL that is a secret: used by every new connection, read again once it was rejected."""

import logging
from functools import cache
from typing import Any

from redis.connection import parse_url
from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError

from duecourse.adapters.redis.nodes import NodePool
from duecourse.domain.address import split
from duecourse.ports.secret import Secret

log = logging.getLogger("duecourse.secrets")


class Login(CredentialProvider):
    """User and password of the URL in a secret.

    A newer URL of another server is not taken: its password is none of this server's business.
    """

    def __init__(self, secret: Secret) -> None:
        self._secret = secret
        self._url = secret.value()

    def get_credentials(self) -> tuple[str] | tuple[str, str] | tuple[()]:  # type: ignore[override]
        """The arguments of AUTH, none for a URL without a login."""
        login: Any = parse_url(f"redis://{split(self._url).login or ''}@localhost")  # type: ignore[no-untyped-call]
        user, password = login.get("username"), login.get("password")
        if user:
            return user, password or ""
        return (password,) if password else ()

    def current(self) -> str:
        """The URL by which a connection would log in now."""
        return self._url

    def renew(self, rejected: str) -> bool:
        """Read the URL again after the login by `rejected` failed; True if there is another one to try."""
        if self._url != rejected:
            return True  # another thread has read it
        found = self._secret.renewed(rejected)
        if found and _is_elsewhere(found, rejected):
            found = self._secret.renewed(found) or found  # kept by the secret: somebody may have mended it since
        if found is None or found == rejected:
            return False
        if _is_elsewhere(found, rejected):
            log.warning("the secret with the store's URL names another server now: deploy again, to use that one")
            return False
        self._url = found
        return True


def _is_elsewhere(found: str, rejected: str) -> bool:
    return split(found).place != split(rejected).place


class Renewing:
    """Part of a connection whose `credential_provider` is a Login: a rejected login is tried once more, if renewed."""

    credential_provider: Login

    def connect_check_health(self, *arguments: Any, **options: Any) -> None:
        """Connect and log in. Raises what redis-py does."""
        used = self.credential_provider.current()
        try:
            super().connect_check_health(*arguments, **options)  # type: ignore[misc]
        except AuthenticationError:
            if not self.credential_provider.renew(used):
                raise
            super().connect_check_health(*arguments, **options)  # type: ignore[misc]


@cache
def renewing(connection_class: type) -> type:
    """The same class of connections, with a login that is renewed."""
    return type(f"Renewing{connection_class.__name__}", (Renewing, connection_class), {})


class RenewingPool(NodePool):
    """A pool of such connections, for a cluster's nodes: their class comes with each URL."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.connection_class = renewing(self.connection_class)
