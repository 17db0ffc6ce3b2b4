"""Contracts of what seals credentials: the key that wraps data keys, the data keys in the ledger, and the cipher."""

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from duecourse.domain.task import Shard


class WrappedKey(NamedTuple):
    """A data key as the ledger keeps it: its id, and its bytes as the wrapping key encrypted them."""

    id: str
    wrapped: bytes


class DataKey(NamedTuple):
    """A new data key: its 32 bytes, and the same as the wrapping key encrypted them."""

    plain: bytes
    wrapped: bytes


class SealState(NamedTuple):
    """The data key that seals now, None before the first; and the shards whose tasks may be sealed.

    Tasks may be sealed in shards of the newest version alone: programs of earlier versions cannot read those.
    """

    current: WrappedKey | None
    ready: Collection[Shard]


class SealKeys(Protocol):
    """The data keys of a namespace, kept in its ledger for good; every verb raises StoreUnavailable."""

    def look(self, shards: Sequence[Shard]) -> SealState:
        """The data key that seals now, and those of the shards whose tasks may be sealed."""

    def get(self, id: str) -> bytes | None:
        """A data key as it is wrapped, of now or of before; None for one that the ledger does not have."""

    def put(self, key: WrappedKey, instead_of: str) -> WrappedKey:
        """Let `key` seal from now on if the one of the id `instead_of` ("" for none) still does; answers who does."""


class Wrapping(Protocol):
    """The key that encrypts data keys.

    Its verbs raise SealUnavailable where it does not answer, and SealBroken for what it cannot have encrypted.
    """

    def new(self) -> DataKey:
        """A new data key."""

    def unwrap(self, wrapped: bytes) -> bytes:
        """The 32 bytes of a data key."""


class Cipher(Protocol):
    """Encryption under one data key; `bound` is what a text belongs to, and must be the same again."""

    def encrypt(self, text: bytes, bound: bytes) -> bytes:
        """The text, encrypted."""

    def digest(self, text: bytes) -> bytes:
        """A hash of 32 bytes that takes the key to make."""

    def decrypt(self, sealed: bytes, bound: bytes) -> bytes:
        """The text. Raises SealBroken for a text that is damaged, of another key, or bound to something else."""
