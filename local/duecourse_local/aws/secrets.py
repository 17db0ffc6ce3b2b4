"""Secrets of the emulator: what functions read by themselves, as deployed."""

from collections.abc import Mapping

from botocore.exceptions import BotoCoreError, ClientError

from ..stack.problems import HarnessError
from .emulator import session

STORE = "duecourse/harness/redis-url"
BROKER = "duecourse/harness/amqp-url"
SIGNING = "duecourse/harness/signing"
"""Names of the harness's own, so that no other secret of a given endpoint is overwritten."""


def keep(aws: str, values: Mapping[str, str]) -> None:
    """Keep each value under its name, in place of one of an earlier stack. Raises HarnessError."""
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
