"""Places in cursors: the times of other tenants' tasks are encrypted in them."""

import hmac
import secrets

from duecourse.adapters.redis.keys import ledger_key
from duecourse.adapters.redis.scripts import Scripts
from duecourse.domain.pages import Place

MARK = "~"
"""First character of an encrypted place, which has the id's field: no id of a task begins with it."""
FIELD = "cursors"
"""Field of the ledger's hash with the secret that encrypts places."""
NONCE, INSTANT = 8, 6
"""Sizes in bytes of the two parts of an encrypted place: a random nonce, and the time."""


class CursorPlaces:
    """Encrypts the times in places that are behind other tenants' tasks, by a secret of the ledger."""

    def __init__(self, scripts: Scripts, namespace: str) -> None:
        self._scripts = scripts
        self._key = ledger_key(namespace)
        self._secret = b""

    def hide(self, place: Place, tenant: str) -> Place:
        """The place as a cursor may have it: unchanged at the beginning, and behind a task of the tenant's own."""
        if place.id or not place.at:
            return place
        nonce = secrets.token_bytes(NONCE)
        hidden = place.at ^ self._pad(nonce, tenant, place.section)
        return place._replace(at=0, id=f"{MARK}{nonce.hex()}{hidden:0{2 * INSTANT}x}")

    def reveal(self, place: Place, tenant: str) -> Place:
        """The place that `hide` was given; the beginning where the text is not one of `hide`."""
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
