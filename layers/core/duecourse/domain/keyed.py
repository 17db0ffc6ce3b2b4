"""One try of a request that carries an Idempotency-Key."""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from duecourse.errors import KeyInUse


class KeyedTry:
    """One try of a request with a key: the first, or a later one after a fault or a crash.

    `since` is when the first try began (epoch ms), 0 in the first. `seed` differs from that of every other request.
    """

    def __init__(
        self, seed: str, since: int = 0, note: bytes = b"", keep: Callable[[bytes], bool] | None = None
    ) -> None:
        self.since = since
        self.is_repeat = bool(note)
        """True if an earlier try came so far that it may have changed something."""
        self._seed = seed
        self._note = note
        self._keep = keep

    def first_saw(self, look: Callable[[], Any]) -> Any:
        """Result of `look` (JSON) in the first try, before the request changed anything.

        The store keeps it before the verb changes anything. Raises StoreUnavailable, and KeyInUse where the request is
        another's meanwhile.
        """
        if not self._note:
            self._note = json.dumps(look(), separators=(",", ":")).encode()
            if self._keep and not self._keep(self._note):
                raise KeyInUse
        return json.loads(self._note)

    def mark(self, name: str = "") -> bytes:
        """8 bytes by which a verb knows its change of `name`: the same in each try, and no other request's."""
        return sha256(f"{self._seed}\0{name}".encode()).digest()[:8]
