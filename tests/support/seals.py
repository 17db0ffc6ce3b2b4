"""Seals for tests: a key of this process, and what a ledger keeps under it."""

from duecourse.guard.cipher import AesGcm, LocalKey
from duecourse.guard.seals import Seals, Wrapping
from duecourse.ledger.operations.ledger import Ledger

LOCAL_KEY = LocalKey(bytes(range(32)), "duecourse")
"""A key that is the same in every test, so that a ledger that one App filled is opened by another."""


def seals_of(ledger: Ledger, wrapping: Wrapping | None = LOCAL_KEY, namespace: str = "duecourse") -> Seals:
    """Seals over this ledger; without a `wrapping`, none are possible."""
    return Seals(namespace, ledger.seal_keys, (lambda: wrapping) if wrapping else None, AesGcm)
