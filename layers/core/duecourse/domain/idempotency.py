"""One try of a request that carries an Idempotency-Key."""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from duecourse.errors import KeyInUse


class KeyedTry:
    """One try of a request with a key: the first, or a later one after a fault or a crash.

    `since` is when the first try began (epoch ms), 0 in the first. `seed` differs from that of every other request.
    `note` is what an earlier try kept by `keep`, which returns False where the request is another owner's by now.
    """

    def __init__(
        self, seed: str, since: int = 0, note: bytes = b"", keep: Callable[[bytes], bool] | None = None
    ) -> None:
        self.since = since
        self.is_repeat = bool(note)
        """True if an earlier try may have changed something."""
        self._seed = seed
        self._note = note
        self._keep = keep

    def first_saw(self, look: Callable[[], Any]) -> Any:
        """Result of `look` (JSON) in the first try; later tries get the same.

        It is kept in the store before the request changes anything. Raises StoreUnavailable, and KeyInUse where the
        request is another owner's by now.
        """
        if not self._note:
            self._note = json.dumps(look(), separators=(",", ":")).encode()
            if self._keep and not self._keep(self._note):
                raise KeyInUse
        return json.loads(self._note)

    def mark(self, name: str = "") -> bytes:
        """8 bytes that mark a change of `name` as this request's: the same in each try, others in other requests."""
        return sha256(f"{self._seed}\0{name}".encode()).digest()[:8]
