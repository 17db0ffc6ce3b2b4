"""Contract of credentials: each is found by its name when a call needs it."""

from typing import Protocol

from duecourse.domain.credential import Credential, CredentialName


class Credentials(Protocol):
    """Credentials by name; safe for threads and forks."""

    def get(self, name: CredentialName, within_s: float, rejected: Credential | None = None) -> Credential:
        """The credential, kept for some minutes; after a destination `rejected` one, it is read again for another.

        Raises InvalidInput for one that is absent, closed to us or wrong. Raises SecretUnavailable where its
        service does not answer, and CallTimedOut where another thread still reads it after so many seconds.
        """
