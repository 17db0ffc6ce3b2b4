"""Secrets of a stack: kept in files, and in the emulator's Secrets Manager, where functions read them."""

import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from duecourse.guard.signing_secrets import new_secret
from duecourse.ledger.task import DEFAULT_TENANT

from ...errors import HarnessError
from ..environment import SIGNED_BY
from ..template import Function
from .emulator import session


def load_or_create(path: Path, make: Callable[[], bytes]) -> bytes:
    """The content of a file; `make` creates a missing one."""
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(make())
        try:
            os.link(made, path)  # of two processes that make one at once, the first one's stays
        except FileExistsError:
            pass
        finally:
            made.unlink()
    return path.read_bytes()


STORE = "duecourse/harness/redis-url"
BROKER = "duecourse/harness/amqp-url"
SIGNING = "duecourse/harness/signing"
"""Names of the harness's own, so that no other secret of a given endpoint is overwritten."""


def put_secrets(aws: str, values: Mapping[str, str]) -> None:
    """Store each value under its name, over one of an earlier stack. Raises HarnessError."""
    from botocore.exceptions import BotoCoreError, ClientError

    manager = session(aws).client("secretsmanager")
    try:
        for name, value in values.items():
            try:
                manager.create_secret(Name=name, SecretString=value)
            except manager.exceptions.ResourceExistsException:
                manager.put_secret_value(SecretId=name, SecretString=value)
    except (BotoCoreError, ClientError) as error:
        raise HarnessError(
            f"the AWS services at {aws} keep no secrets, and functions read theirs there: {error}"
        ) from error


SIGNING_FILE = "signing-secret"


def signing_secret(state: Path) -> str:
    """The secret of the stack that uses this state folder."""
    return load_or_create(state / SIGNING_FILE, lambda: new_secret().encode()).decode()


def put_signing_secret(aws: str, state: Path, described: Iterable[Function]) -> bool:
    """Store the signing secret of every tenant; False if no function reads it. Raises HarnessError."""
    if all(function.environment.get(SIGNED_BY) != SIGNING for function in described):
        return False
    put_secrets(aws, {SIGNING: json.dumps({DEFAULT_TENANT: [signing_secret(state)]})})
    return True
