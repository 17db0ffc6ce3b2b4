"""Keys of this machine alone, made at their first use and kept in the state folder: for tokens, and for signatures."""

import secrets
from pathlib import Path

from joserfc.jwk import RSAKey

from ...stack.kept import kept

BITS = 2048


class Keys:
    """The keys in one folder, which only its owner may read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of_tokens(self) -> RSAKey:
        """Private key that signs tokens."""
        return RSAKey.import_key(
            kept(self._folder / "tokens.pem", lambda: RSAKey.generate_key(BITS).as_pem(private=True))
        )

    def of_signatures(self) -> bytes:
        """Secret from which the secret of each access key follows."""
        return kept(self._folder / "signatures", lambda: secrets.token_bytes(32))
