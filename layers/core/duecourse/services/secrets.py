"""Secrets Manager: a secret that is read again once rejected, credentials, and secrets that sign webhooks."""

import logging
import os
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

from duecourse.base.secret_cache import AGAIN_S, MOST, ExpiringCache, FetchedValue
from duecourse.errors import (
    DuecourseError,
    FieldError,
    InvalidInput,
    InvalidSettings,
    SecretUnavailable,
    StoreUnavailable,
)
from duecourse.guard.call_credentials import Credential
from duecourse.guard.http_types import CredentialName
from duecourse.guard.signing_secrets import Secrets
from duecourse.services.aws import client_of

# A secret of Secrets Manager: read at its first use, kept by the process, read again when its value was rejected.

ATTEMPTS, CONNECT_S, READ_S = 2, 2.0, 2.0
"""An answer is known within 9 s, botocore's own wait included: less than any function's timeout."""
SECRET_AGAIN_S = 5.0
"""Shortest time between two readings after rejected logins: a password that stays wrong must not become a load."""
WRONG = {
    "ResourceNotFoundException": "names a secret that does not exist in this account and region",
    "AccessDeniedException": "names a secret that this role may not read: allow secretsmanager:GetSecretValue on it",
    "DecryptionFailure": "names a secret whose KMS key this role may not use: allow kms:Decrypt on it (SecretsKeyArn)",
    "InvalidRequestException": "names a secret that cannot be read, such as one that is marked for deletion",
}
"""Errors that stay until somebody changes something; any other may pass."""
log = logging.getLogger("duecourse.services")


class Unreadable(Exception):
    """A secret has no text for us; `may_pass` is False where that stays until somebody changes something."""

    def __init__(self, problem: str, *, may_pass: bool = False) -> None:
        self.may_pass = may_pass
        super().__init__(problem)


def secrets_client(given: Any) -> Callable[[], Any]:
    """A client of Secrets Manager: the given one, or else one that the first reading makes."""
    return client_of("secretsmanager", given, attempts=ATTEMPTS, connect_timeout_s=CONNECT_S, read_timeout_s=READ_S)


def text_of(client: Callable[[], Any], name: str) -> str:
    """The text of a secret, by its name or ARN; "" for one without text. Raises Unreadable."""
    if not find_spec("boto3"):
        raise Unreadable("needs boto3, which is not installed here: pip install 'duecourse[aws]'")
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        answer = client().get_secret_value(SecretId=name)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        raise Unreadable(WRONG.get(code) or f"answered {code}", may_pass=code not in WRONG) from error
    except BotoCoreError as error:
        raise Unreadable(f"does not answer ({error})", may_pass=True) from error
    return answer.get("SecretString") or ""


class ManagedSecret:
    """A Secret by its name or ARN; `setting` is the variable that names it, for errors.

    `check` raises ValueError for a wrong value, in words that hold no part of it.
    """

    def __init__(self, setting: str, name: str, check: Callable[[str], str], client: Any = None) -> None:
        self._setting = setting
        self._name = name
        self._check = check
        self._client = secrets_client(client)
        self._process, self._lock = os.getpid(), threading.Lock()
        self._value: str | None = None
        self._renewed_at = -SECRET_AGAIN_S

    def value(self) -> str:
        """See Secret."""
        with self._reading():
            if self._value is None:
                self._value = self._read()
            return self._value

    def renewed(self, rejected: str) -> str | None:
        """See Secret. Of many threads with the same rejected value, one reads."""
        with self._reading():
            if self._value == rejected and time.monotonic() - self._renewed_at >= SECRET_AGAIN_S:
                self._value = self._read_again(rejected)
                self._renewed_at = time.monotonic()
            return None if self._value == rejected else self._value

    def _reading(self) -> threading.Lock:
        """The lock around a read; new in a forked child, where the thread that held the parent's is gone."""
        if self._process != os.getpid():
            self._process, self._lock = os.getpid(), threading.Lock()
        return self._lock

    def _read_again(self, rejected: str) -> str:
        try:
            found = self._read()
        except DuecourseError as error:
            log.warning("a login was rejected, and its secret cannot be read again: %s", error)
            return rejected
        log.warning(
            "a login was rejected: the secret that %s names %s",
            self._setting,
            "has not changed" if found == rejected else "has a newer value, which is used from now on",
        )
        return found

    def _read(self) -> str:
        try:
            return self._checked(text_of(self._client, self._name))
        except Unreadable as error:
            raise self._silence(str(error)) if error.may_pass else self._wrong(str(error)) from error

    def _silence(self, problem: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"Secrets Manager {problem}, so the secret that {self._setting} names cannot be read. "
            "Functions in a VPC need a NAT or an endpoint for it"
        )

    def _checked(self, value: str) -> str:
        if not value:
            raise self._wrong("names a secret without text: its value must be the URL")
        try:
            return self._check(value)
        except ValueError as error:
            raise self._wrong(f"names a secret whose value {error}") from None

    def _wrong(self, problem: str) -> InvalidSettings:
        return InvalidSettings([FieldError(self._setting, problem)])


# Credentials of Secrets Manager: one secret for each name, whose text a reader turns into a credential.

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
        self._client = secrets_client(client)
        self._kept: ExpiringCache[CredentialName, Credential] = ExpiringCache(now, owner=lambda name: name.tenant)
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

    def _read(self, name: CredentialName) -> FetchedValue[Credential]:
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

    def _asked(self, name: CredentialName) -> FetchedValue[Credential]:
        secret = name.secret(self._prefix)
        if 0 <= self._now() - self._away_at < AGAIN_S:
            raise SecretUnavailable(f"the secret {secret} cannot be read: Secrets Manager did not answer just now")
        try:
            return FetchedValue(self._reader(text_of(self._client, secret)), KEPT_S)
        except Unreadable as error:
            if error.may_pass:
                self._away_at = self._now()
                raise SecretUnavailable(f"the secret {secret} cannot be read: Secrets Manager {error}") from error
            raise _wrong(name, f"{error} ({secret})") from error
        except InvalidInput as error:
            raise _wrong(name, f"names a secret whose value is wrong: {error} ({secret})") from None


def _wrong(name: CredentialName, problem: str) -> InvalidInput:
    return InvalidInput([FieldError(f"auth {name.name}", problem)])


# The secrets by which webhooks are signed: kept in Secrets Manager, and read again so that a rotation is seen.

SETTING = "DUECOURSE_SIGNING_SECRET"
SIGNING_AGAIN_S = 5.0
"""Time for which an error is kept: calls that wait for the same secrets must not read them one after the other."""


class SigningSecrets:
    """The secrets in the one by this name or ARN; safe for threads. `read` raises ValueError, with no secret in it.

    Secrets that cannot be read again are used further. `now` counts seconds also while a function is frozen, unlike the
    monotonic clock.
    """

    def __init__(
        self, name: str, read: Callable[[str], Secrets], client: Any = None, now: Callable[[], float] = time.time
    ) -> None:
        self._name = name
        self._client = secrets_client(client)
        self._read = read
        self._now = now
        self._process, self._reading = os.getpid(), threading.Lock()
        self._known: Secrets | None = None
        self._problem = ""
        self._until = 0.0

    def __call__(self) -> Secrets:
        """The secrets. While one thread reads them again, the others use the last ones. Raises SecretUnavailable."""
        if self._process != os.getpid():  # in a forked child, the thread that held its parent's lock is not there
            self._process, self._reading = os.getpid(), threading.Lock()
        known = self._known
        if known is not None and (self._now() < self._until or not self._reading.acquire(blocking=False)):
            return known
        if known is None:
            self._reading.acquire()
        try:
            if self._now() >= self._until:
                self._renew()
            if self._known is None:
                raise SecretUnavailable(self._problem)
            return self._known
        finally:
            self._reading.release()

    def _renew(self) -> None:
        try:
            self._known, kept_s = self._read(text_of(self._client, self._name)), KEPT_S
        except Unreadable as error:
            kept_s = self._failed(f"Secrets Manager {error}" if error.may_pass else str(error))
        except ValueError as error:
            kept_s = self._failed(f"names a secret whose value {error}")
        self._until = self._now() + kept_s

    def _failed(self, problem: str) -> float:
        self._problem = f"{SETTING}: {problem}"
        log.warning("the secrets of webhooks cannot be read: %s", self._problem)
        return SIGNING_AGAIN_S
