"""AES-256-GCM under one key, and a wrapping key in a file for stacks on one machine."""

import hmac
import os
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from duecourse.errors import FieldError, InvalidSettings, SealBroken
from duecourse.guard.seals import DataKey

# AES-256-GCM under one key, each text with a random nonce of its own.

KEY_BYTES, NONCE_BYTES = 32, 12
BROKEN = "the sealed credentials of this task cannot be opened: they are damaged, or of another key or task"


class AesGcm:
    """Encryption under one data key by AES-GCM; `bound` is what a text belongs to, and must be the same again.

    With random nonces, one key is good for 2^32 texts: rotate it before.
    """

    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(key)
        self._hashing = hmac.digest(key, b"duecourse digest", "sha256")

    def encrypt(self, text: bytes, bound: bytes) -> bytes:
        """The text, encrypted: the nonce, then the text and its tag."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, text, bound)

    def digest(self, text: bytes) -> bytes:
        """A hash of 32 bytes that takes the key to make: an HMAC, by a key of its own."""
        return hmac.digest(self._hashing, text, "sha256")

    def decrypt(self, sealed: bytes, bound: bytes) -> bytes:
        """The text. Raises SealBroken for a text that is damaged, of another key, or bound to something else."""
        try:
            return self._aead.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], bound)
        except (InvalidTag, ValueError) as error:  # ValueError: there is less than a nonce
            raise SealBroken(BROKEN) from error


# A wrapping key in a file, for stacks on one machine.

BROKEN_DATA_KEY = (
    "a data key of the ledger cannot be opened: the file of DUECOURSE_SEAL_KEY is not the key that made it"
)


class LocalKey:
    """A Wrapping by 32 bytes of this machine's; data keys are bound to the namespace."""

    def __init__(self, key: bytes, namespace: str) -> None:
        self._cipher = AesGcm(key)
        self._bound = namespace.encode()

    @classmethod
    def in_file(cls, path: str, namespace: str) -> Self:
        """The key in the file at `path`. Raises InvalidSettings for a file that cannot be read, or holds no key."""
        try:
            key = Path(path).read_bytes()
        except OSError as error:
            raise _wrong(f"names {path}, which cannot be read: {error.strerror}") from error
        if len(key) != KEY_BYTES:
            raise _wrong(f"names {path}, which must hold {KEY_BYTES} random bytes")
        return cls(key, namespace)

    def new(self) -> DataKey:
        """See Wrapping."""
        plain = os.urandom(KEY_BYTES)
        return DataKey(plain, self._cipher.encrypt(plain, self._bound))

    def unwrap(self, wrapped: bytes) -> bytes:
        """See Wrapping."""
        try:
            return self._cipher.decrypt(wrapped, self._bound)
        except SealBroken as error:
            raise SealBroken(BROKEN_DATA_KEY) from error


def _wrong(problem: str) -> InvalidSettings:
    return InvalidSettings([FieldError("DUECOURSE_SEAL_KEY", problem)])
