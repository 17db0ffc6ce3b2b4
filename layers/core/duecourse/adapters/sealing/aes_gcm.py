"""AES-256-GCM under one key, each text with a random nonce of its own."""

import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from duecourse.errors import SealBroken

KEY_BYTES, NONCE_BYTES = 32, 12
BROKEN = "the sealed credentials of this task cannot be opened: they are damaged, or of another key or task"


class AesGcm:
    """A Cipher (ports.seals). With random nonces, one key is good for 2^32 texts: rotate it before."""

    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(key)
        self._hashing = hmac.digest(key, b"duecourse digest", "sha256")

    def encrypt(self, text: bytes, bound: bytes) -> bytes:
        """See Cipher: the nonce, then the text and its tag."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, text, bound)

    def digest(self, text: bytes) -> bytes:
        """See Cipher: an HMAC, by a key of its own."""
        return hmac.digest(self._hashing, text, "sha256")

    def decrypt(self, sealed: bytes, bound: bytes) -> bytes:
        """See Cipher."""
        try:
            return self._aead.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], bound)
        except (InvalidTag, ValueError) as error:  # ValueError: there is less than a nonce
            raise SealBroken(BROKEN) from error
