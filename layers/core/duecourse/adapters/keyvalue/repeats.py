"""What is remembered of requests, on the ordered map that has the ledger.

Keys are `request NUL tenant/key`, with when it was first begun (8 bytes), the fingerprint (32), then `A` and the
answer, or `U`, the owner (8) and until when it has it (8); and `begun NUL when (8), tenant/key` for their order.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from typing import NamedTuple, TypeGuard

from duecourse.adapters.keyvalue.map import Batch
from duecourse.ports.repeats import KEPT_MS, PRUNE, Claimed, Sent, Standing

REQUEST, BEGUN = b"request\0", b"begun\0"
ANSWERED, UNDER_WAY = b"A", b"U"

Change = Callable[[], AbstractContextManager[tuple[Batch, int]]]
"""One change of the map: a batch that is committed at its end, and the time (epoch ms)."""


class _Kept(NamedTuple):
    begun_at: int
    fingerprint: bytes
    state: bytes
    rest: bytes

    @property
    def owner(self) -> bytes:
        return self.rest[:8]

    @property
    def until(self) -> int:
        return int.from_bytes(self.rest[8:])


class KeyValueRepeats:
    """The requests that were begun (ports.repeats.Repeats), each verb one change of the map."""

    def __init__(self, change: Change) -> None:
        self._change = change

    def begin(self, sent: Sent, owner: bytes, lock_ms: int) -> Claimed:
        """See Repeats."""
        with self._change() as (batch, now):
            kept = _read(batch, sent)
            if not kept or kept.begun_at <= now - KEPT_MS:
                _forget(batch, _name(sent), kept)
                batch.put(BEGUN + now.to_bytes(8) + _name(sent), b"")
                _lock(batch, sent, now, owner, now + lock_ms)
                return Claimed(Standing.FRESH)
            refused = _refusal(kept, sent, owner, now)
            if refused:
                return refused
            _lock(batch, sent, kept.begun_at, owner, now + lock_ms)
            return Claimed(Standing.AGAIN, begun_at=kept.begun_at)

    def end(self, sent: Sent, owner: bytes, answer: bytes) -> bool:
        """See Repeats."""
        with self._change() as (batch, _now):
            kept = _read(batch, sent)
            if not _is_held(kept, sent, owner):
                return kept is not None and kept[1:] == (sent.fingerprint, ANSWERED, answer)
            _write(batch, sent, kept._replace(state=ANSWERED, rest=answer))
            return True

    def release(self, sent: Sent, owner: bytes) -> bool:
        """See Repeats."""
        with self._change() as (batch, _now):
            kept = _read(batch, sent)
            if not _is_held(kept, sent, owner):
                return False
            _lock(batch, sent, kept.begun_at, owner, 0)
            return True

    def forget(self, sent: Sent, owner: bytes) -> bool:
        """See Repeats."""
        with self._change() as (batch, _now):
            kept = _read(batch, sent)
            if not _is_held(kept, sent, owner):
                return False
            _forget(batch, _name(sent), kept)
            return True

    def prune(self) -> int:
        """See Repeats."""
        with self._change() as (batch, now):
            old = list(islice(_begun_until(batch, now - KEPT_MS), PRUNE))
            for name in old:
                _forget(batch, name, _decode(batch.get(REQUEST + name)))
            return len(old)


def _refusal(kept: _Kept, sent: Sent, owner: bytes, now: int) -> Claimed | None:
    if kept.fingerprint != sent.fingerprint:
        return Claimed(Standing.OTHER)
    if kept.state == ANSWERED:
        return Claimed(Standing.ENDED, kept.rest)
    if kept.until > now and kept.owner != owner:
        return Claimed(Standing.UNDER_WAY, left_ms=kept.until - now)
    return None


def _is_held(kept: _Kept | None, sent: Sent, owner: bytes) -> TypeGuard[_Kept]:
    return kept is not None and kept[1:3] == (sent.fingerprint, UNDER_WAY) and kept.owner == owner


def _begun_until(batch: Batch, cut: int) -> Iterator[bytes]:
    for key, _ in batch.range(BEGUN, BEGUN + (cut + 1).to_bytes(8)):
        yield key[len(BEGUN) + 8 :]


def _lock(batch: Batch, sent: Sent, begun_at: int, owner: bytes, until: int) -> None:
    _write(batch, sent, _Kept(begun_at, sent.fingerprint, UNDER_WAY, owner + until.to_bytes(8)))


def _write(batch: Batch, sent: Sent, kept: _Kept) -> None:
    batch.put(REQUEST + _name(sent), kept.begun_at.to_bytes(8) + kept.fingerprint + kept.state + kept.rest)


def _read(batch: Batch, sent: Sent) -> _Kept | None:
    return _decode(batch.get(REQUEST + _name(sent)))


def _decode(data: bytes | None) -> _Kept | None:
    return _Kept(int.from_bytes(data[:8]), data[8:40], data[40:41], data[41:]) if data else None


def _forget(batch: Batch, name: bytes, kept: _Kept | None) -> None:
    if kept:
        batch.delete(BEGUN + kept.begun_at.to_bytes(8) + name)
        batch.delete(REQUEST + name)


def _name(sent: Sent) -> bytes:
    return f"{sent.tenant}/{sent.key}".encode()
