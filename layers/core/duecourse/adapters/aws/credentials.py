"""Credentials of Secrets Manager: one secret for each name, whose text a reader turns into a credential."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from duecourse.adapters.aws.secret import Unreadable, client_of, text_of
from duecourse.adapters.kept import AGAIN_S, MOST, Kept, Read
from duecourse.domain.credential import Credential, CredentialName
from duecourse.errors import FieldError, InvalidInput, SecretUnavailable

KEPT_S = 300.0
"""Time for which a credential is kept: a change is seen by then, and at once where the old one is rejected."""


MISSES, MISSES_S = 20, 10.0
"""Number of wrong names of a tenant that are looked up in so many seconds: each costs a call."""


class _Misses(NamedTuple):
    """Wrong names of a tenant since an instant."""

    since: float
    number: int


class ManagedCredentials:
    """Credentials in the secrets `<prefix><tenant>/<name>`; `read` turns a text into one, or raises InvalidInput.

    For seconds after Secrets Manager did not answer it is not asked: many names would hold each thread in turn. After
    too many wrong names of a tenant, its new names wait; those that were right before are read all the same.
    """

    def __init__(
        self, prefix: str, read: Callable[[str], Credential], client: Any = None, now: Callable[[], float] = time.time
    ) -> None:
        self._prefix = prefix
        self._now = now
        self._away_at = 0.0
        self._reader = read
        self._client = client or client_of()
        self._kept: Kept[CredentialName, Credential] = Kept(now, owner=lambda name: name.tenant)
        self._right: set[CredentialName] = set()
        self._misses: dict[str, _Misses] = {}

    def get(self, name: CredentialName, within_s: float, rejected: Credential | None = None) -> Credential:
        """See Credentials."""
        if name not in self._right and self._missed(name.tenant).number >= MISSES:
            raise SecretUnavailable(
                f"auth {name.name} is looked up later: {MISSES} names were wrong within {MISSES_S:g} s"
            )
        return self._kept.get(name, lambda: self._read(name), within_s, rejected)

    def _missed(self, tenant: str) -> _Misses:
        now = self._now()
        found = self._misses.get(tenant)
        return found if found and 0 <= now - found.since < MISSES_S else _Misses(now, 0)

    def _read(self, name: CredentialName) -> Read[Credential]:
        try:
            found = self._asked(name)
        except InvalidInput:
            self._miss(name)
            raise
        self._right.add(name)
        return found

    def _miss(self, name: CredentialName) -> None:
        """Count a wrong name; threads may lose a count to each other, which costs one look-up more."""
        self._right.discard(name)
        missed = self._missed(name.tenant)
        self._misses.pop(name.tenant, None)  # the oldest come first
        self._misses[name.tenant] = missed._replace(number=missed.number + 1)
        if len(self._misses) > MOST:
            self._misses.pop(next(iter(self._misses)), None)

    def _asked(self, name: CredentialName) -> Read[Credential]:
        secret = name.secret(self._prefix)
        if 0 <= self._now() - self._away_at < AGAIN_S:
            raise SecretUnavailable(f"the secret {secret} cannot be read: Secrets Manager did not answer just now")
        try:
            return Read(self._reader(text_of(self._client, secret)), KEPT_S)
        except Unreadable as error:
            if error.may_pass:
                self._away_at = self._now()
                raise SecretUnavailable(f"the secret {secret} cannot be read: Secrets Manager {error}") from error
            raise _wrong(name, f"{error} ({secret})") from error
        except InvalidInput as error:
            raise _wrong(name, f"names a secret whose value is wrong: {error} ({secret})") from None


def _wrong(name: CredentialName, problem: str) -> InvalidInput:
    return InvalidInput([FieldError(f"auth {name.name}", problem)])
