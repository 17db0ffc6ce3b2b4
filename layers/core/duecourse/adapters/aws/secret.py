"""A secret of Secrets Manager: read at its first use, kept by the process, read again when its value was rejected."""

import logging
import os
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from duecourse.adapters.aws.clients import LazyClient
from duecourse.errors import DuecourseError, FieldError, InvalidSettings, StoreUnavailable

ATTEMPTS, CONNECT_S, READ_S = 2, 2.0, 2.0
"""An answer is known within 9 s, botocore's own wait included: less than any function's timeout."""
AGAIN_S = 5.0
"""Shortest time between two readings after rejected logins: a password that stays wrong must not become a load."""
WRONG = {
    "ResourceNotFoundException": "names a secret that does not exist in this account and region",
    "AccessDeniedException": "names a secret that this role may not read: allow secretsmanager:GetSecretValue on it",
    "DecryptionFailure": "names a secret whose KMS key this role may not use: allow kms:Decrypt on it (SecretsKeyArn)",
    "InvalidRequestException": "names a secret that cannot be read, such as one that is marked for deletion",
}
"""Errors that stay until somebody changes something; any other may pass."""
log = logging.getLogger("duecourse.secrets")


class Unreadable(Exception):
    """A secret has no text for us; `may_pass` is False where that stays until somebody changes something."""

    def __init__(self, problem: str, *, may_pass: bool = False) -> None:
        self.may_pass = may_pass
        super().__init__(problem)


def client_of() -> LazyClient:
    """A client of Secrets Manager."""
    return LazyClient("secretsmanager", attempts=ATTEMPTS, connect_timeout_s=CONNECT_S, read_timeout_s=READ_S)


def text_of(client: Any, name: str) -> str:
    """The text of a secret, by its name or ARN; "" for one without text. Raises Unreadable."""
    if not find_spec("boto3"):
        raise Unreadable("needs boto3, which is not installed here: pip install 'duecourse[aws]'")
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        answer = client.get_secret_value(SecretId=name)
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
        self._client = client or client_of()
        self._process, self._lock = os.getpid(), threading.Lock()
        self._value: str | None = None
        self._renewed_at = -AGAIN_S

    def value(self) -> str:
        """See Secret."""
        with self._reading():
            if self._value is None:
                self._value = self._read()
            return self._value

    def renewed(self, rejected: str) -> str | None:
        """See Secret. Of many threads with the same rejected value, one reads."""
        with self._reading():
            if self._value == rejected and time.monotonic() - self._renewed_at >= AGAIN_S:
                self._value = self._read_again(rejected)
                self._renewed_at = time.monotonic()
            return None if self._value == rejected else self._value

    def _reading(self) -> threading.Lock:
        """The lock of who reads; in a forked child a new one, for the thread that held its parent's is not there."""
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
