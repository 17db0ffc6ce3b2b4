"""Seals for tests: a key of this process, and what a ledger keeps under it."""

from duecourse.adapters.sealing.aes_gcm import AesGcm
from duecourse.adapters.sealing.local_key import LocalKey
from duecourse.engine.seals import Seals
from duecourse.ports.seals import Wrapping
from duecourse.ports.store import Store

LOCAL_KEY = LocalKey(bytes(range(32)), "duecourse")
"""A key that is the same in every test, so that a ledger that one App filled is opened by another."""


def seals_of(store: Store, wrapping: Wrapping | None = LOCAL_KEY, namespace: str = "duecourse") -> Seals:
    """Seals over this ledger; without a `wrapping`, none are possible."""
    return Seals(namespace, store.seal_keys, (lambda: wrapping) if wrapping else None, AesGcm)
