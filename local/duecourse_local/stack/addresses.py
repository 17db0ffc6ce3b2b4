"""A store's address as the harness shows it."""

from duecourse.domain.address import split
from duecourse.settings import Settings


def named(given: Settings) -> str:
    """Name of a ledger's place for a message: nothing is read for it, and no password is in it."""
    return f"the URL in the secret {given.store_secret}" if given.store_secret else shown(given.store)


def shown(url: str) -> str:
    """`url` without its password, for logs and messages."""
    login = split(url).login or ""
    user, colon, _ = login.partition(":")
    return url.replace(f"{login}@", f"{user}:***@", 1) if colon else url
