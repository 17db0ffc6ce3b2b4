"""Keyring: the credentials that tasks name in `auth`, in the Secrets Manager of the local stack or of an account."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from duecourse.api.credential_secrets import read_credential
from duecourse.errors import InvalidInput
from duecourse.guard.http_types import CredentialName

from ...errors import HarnessError
from .emulator import session

MARK = {"Key": "duecourse", "Value": "credential"}


class CredentialView(NamedTuple):
    """A credential without its secret parts."""

    tenant: str
    name: str
    type: str
    hosts: list[str]


class Keyring:
    """Credentials under one prefix: at the emulator's address `aws`, or of the account that AWS's own settings name."""

    def __init__(self, aws: str | None, prefix: str) -> None:
        self._prefix = prefix
        self._aws = aws
        with _secrets_errors(aws):
            self._manager = _client(aws)

    def put(self, name: CredentialName, value: Mapping[str, Any]) -> str:
        """Keep a credential in place of one of the same name; the secret's name. Raises InvalidInput, HarnessError."""
        text = json.dumps(value)
        read_credential(text)
        secret, known = name.secret(self._prefix), self._manager.exceptions
        with _secrets_errors(self._aws):
            try:
                self._manager.create_secret(Name=secret, SecretString=text, Tags=[MARK])
            except (known.ResourceExistsException, known.InvalidRequestException):
                self._manager.restore_secret(SecretId=secret)  # if it was deleted in the last seven days
                self._manager.put_secret_value(SecretId=secret, SecretString=text)
        return secret

    def remove(self, name: CredentialName) -> None:
        """Delete a credential; for seven days more it can be restored. Raises HarnessError."""
        with _secrets_errors(self._aws):
            self._manager.delete_secret(SecretId=name.secret(self._prefix), RecoveryWindowInDays=7)

    def every(self) -> list[CredentialView]:
        """All of them, by tenant and name. Raises HarnessError."""
        with _secrets_errors(self._aws):
            pages = self._manager.get_paginator("list_secrets").paginate(
                Filters=[{"Key": "name", "Values": [self._prefix]}]
            )
            names = [secret["Name"] for page in pages for secret in page["SecretList"]]
            return sorted(self._view(name) for name in names if name.startswith(self._prefix))

    def _view(self, secret: str) -> CredentialView:
        tenant, _, name = secret.removeprefix(self._prefix).partition("/")
        text = self._manager.get_secret_value(SecretId=secret).get("SecretString", "")
        try:
            read_credential(text)
        except InvalidInput as error:
            return CredentialView(tenant, name, f"wrong: {error}", [])
        value = json.loads(text)
        return CredentialView(tenant.replace("+", ":"), name, value["type"], value["hosts"])


def _client(aws: str | None) -> Any:
    if aws:
        return session(aws).client("secretsmanager")
    import boto3

    return boto3.client("secretsmanager")


@contextmanager
def _secrets_errors(aws: str | None) -> Iterator[None]:
    """Turn an error of Secrets Manager into a HarnessError."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise HarnessError(f"Secrets Manager{f' at {aws}' if aws else ''} does not do that: {error}") from error
