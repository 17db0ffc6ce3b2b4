"""A wrapping key in a file, for stacks on one machine."""

import os
from pathlib import Path
from typing import Self

from duecourse.adapters.sealing.aes_gcm import KEY_BYTES, AesGcm
from duecourse.errors import FieldError, InvalidSettings, SealBroken
from duecourse.ports.seals import DataKey

BROKEN = "a data key of the ledger cannot be opened: the file of DUECOURSE_SEAL_KEY is not the key that made it"


class LocalKey:
    """A Wrapping (ports.seals) by 32 bytes of this machine's; data keys are bound to the namespace."""

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
            raise SealBroken(BROKEN) from error


def _wrong(problem: str) -> InvalidSettings:
    return InvalidSettings([FieldError("DUECOURSE_SEAL_KEY", problem)])
