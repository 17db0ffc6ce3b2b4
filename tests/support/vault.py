"""A Secrets Manager of tests, in as far as secrets are read, and what it takes to call with what it keeps."""

import json
import threading
from typing import Any

from botocore.exceptions import ClientError

from duecourse.api.credential_secrets import read_credential
from duecourse.services.secrets import ManagedCredentials

PREFIX = "duecourse/auth/"


class Vault:
    """Secrets by name: a value that is an error is raised, any other is answered as JSON."""

    def __init__(self, **secrets: Any) -> None:
        self.secrets = {f"{PREFIX}-/{name}": value for name, value in secrets.items()}
        self.asked: list[str] = []
        self._asking = threading.Lock()

    def get_secret_value(self, *, SecretId: str) -> dict[str, Any]:  # noqa: N803 - its own word
        with self._asking:
            self.asked.append(SecretId)
            value = self.secrets.get(SecretId, refusal("ResourceNotFoundException"))
        if isinstance(value, Exception):
            raise value
        return {"SecretString": value if isinstance(value, str) else json.dumps(value)}

    def credentials(self) -> ManagedCredentials:
        """Credentials as calls find them."""
        return ManagedCredentials(PREFIX, read_credential, self)


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "…"}}, "GetSecretValue")
