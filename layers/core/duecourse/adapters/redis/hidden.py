"""Places behind tasks of other tenants, as cursors show them: not when those tasks are due, or ended."""

import hmac
import secrets

from duecourse.adapters.redis.keys import ledger_key
from duecourse.adapters.redis.scripts import Scripts
from duecourse.domain.pages import Place

MARK = "~"
"""Beginning of a hidden place, in the place of an id: no id of a task begins so."""
FIELD = "cursors"
"""Field of the ledger's hash that has the secret by which places are hidden."""
NONCE, INSTANT = 8, 6
"""Bytes of a hidden place: drawn for each, and those of the instant."""


class HiddenPlaces:
    """The instants in places that no task of the caller has, hidden under a secret of the ledger."""

    def __init__(self, scripts: Scripts, namespace: str) -> None:
        self._scripts = scripts
        self._key = ledger_key(namespace)
        self._secret = b""

    def hidden(self, place: Place, tenant: str) -> Place:
        """A place as a cursor may have it; one after a task of the tenant's own, or at the beginning, is itself."""
        if place.id or not place.at:
            return place
        nonce = secrets.token_bytes(NONCE)
        hidden = place.at ^ self._pad(nonce, tenant, place.section)
        return place._replace(at=0, id=f"{MARK}{nonce.hex()}{hidden:0{2 * INSTANT}x}")

    def shown(self, place: Place, tenant: str) -> Place:
        """The place that `hidden` made a cursor of; of a text that is none, the beginning."""
        if not place.id.startswith(MARK):
            return place
        try:
            nonce, hidden = bytes.fromhex(place.id[1 : 1 + 2 * NONCE]), int(place.id[1 + 2 * NONCE :], 16)
        except ValueError:
            return place._replace(at=0, id="")
        at = hidden ^ self._pad(nonce, tenant, place.section)
        return place._replace(at=at % (1 << 8 * INSTANT), id="")

    def _pad(self, nonce: bytes, tenant: str, section: str) -> int:
        if not self._secret:
            self._scripts.command("HSETNX", self._key, FIELD, secrets.token_bytes(32))
            self._secret = self._scripts.command("HGET", self._key, FIELD)
        drawn = hmac.digest(self._secret, nonce + f"{tenant}/{section}".encode(), "sha256")
        return int.from_bytes(drawn[:INSTANT])
