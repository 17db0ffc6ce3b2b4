"""A wrapping key in KMS: makes data keys and opens them, each bound to the namespace by its encryption context."""

from importlib.util import find_spec
from typing import Any

from duecourse.adapters.aws.clients import LazyClient
from duecourse.errors import DuecourseError, SealBroken, SealUnavailable
from duecourse.ports.seals import DataKey

ATTEMPTS, CONNECT_S, READ_S = 2, 2.0, 2.0
CONTEXT = "duecourse:namespace"
"""Name in the encryption context; policies may demand its value."""
WRONG = {"InvalidCiphertextException", "IncorrectKeyException"}
"""Errors of a data key that this key cannot have made; any other may pass, or somebody mends it."""
CLOSED = {"AccessDeniedException": ": allow kms:GenerateDataKey and kms:Decrypt on it for this role"}


class KmsKey:
    """A Wrapping (ports.seals) by the KMS key of this ARN, id or alias."""

    def __init__(self, key: str, namespace: str, client: Any = None) -> None:
        self._key = key
        self._context = {CONTEXT: namespace}
        self._client = client or LazyClient(
            "kms", attempts=ATTEMPTS, connect_timeout_s=CONNECT_S, read_timeout_s=READ_S
        )

    def new(self) -> DataKey:
        """See Wrapping."""
        answer = self._ask("generate_data_key", KeyId=self._key, KeySpec="AES_256")
        return DataKey(answer["Plaintext"], answer["CiphertextBlob"])

    def unwrap(self, wrapped: bytes) -> bytes:
        """See Wrapping. KMS finds the key by the text, so that data keys of an earlier one still open."""
        plain: bytes = self._ask("decrypt", CiphertextBlob=wrapped)["Plaintext"]
        return plain

    def _ask(self, verb: str, **given: Any) -> Any:
        if not find_spec("boto3"):
            raise SealUnavailable("DUECOURSE_SEAL_KEY needs boto3: pip install 'duecourse[aws]'")
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._client, verb)(EncryptionContext=self._context, **given)
        except ClientError as error:
            raise self._refusal(error.response["Error"]["Code"]) from error
        except BotoCoreError as error:
            raise SealUnavailable(f"KMS does not answer ({error}), so no credential is sealed or opened") from error

    def _refusal(self, code: str) -> DuecourseError:
        if code in WRONG:
            return SealBroken(f"a data key of the ledger cannot be opened: KMS answered {code}")
        return SealUnavailable(f"KMS answered {code} for the key that DUECOURSE_SEAL_KEY names{CLOSED.get(code, '')}")
