"""The secret that DUECOURSE_SIGNING_SECRET names, read without pydantic: a list of secrets for each tenant."""

from duecourse.domain.signing import PREFIX, Secrets, check_secret
from duecourse.domain.task import Json
from duecourse.wire import doubled
from duecourse.wire.settings.variables import NAME

EXAMPLE = '{"-": ["whsec_…"], "acme": ["whsec_new…", "whsec_old…"]}'
MOST = 2
"""A new secret and an old one: more at once is no rotation, and makes each request larger."""


def read_secrets(text: str) -> Secrets:
    """The secrets by tenant. Raises ValueError, with no secret in its text."""
    try:
        found, twice = doubled.load(text)
    except (ValueError, RecursionError):
        found, twice = None, []
    if not isinstance(found, dict) or not found:
        raise ValueError(f"must be JSON such as {EXAMPLE}")
    if twice:
        raise ValueError("has a tenant twice")
    return {_tenant(name): _secrets(place, given) for place, (name, given) in enumerate(found.items(), 1)}


def _tenant(name: str) -> str:
    if not NAME.fullmatch(name) or name.startswith(PREFIX):
        raise ValueError("must have the name of a tenant before each list of secrets, or - for all others")
    return name


def _secrets(place: int, given: Json) -> tuple[str, ...]:
    if not isinstance(given, list) or not 1 <= len(given) <= MOST:
        raise ValueError(f"must have a list of one or two secrets for each tenant; that of tenant {place} is none")
    try:
        return tuple(map(check_secret, given))
    except ValueError as error:
        raise ValueError(f"has a malformed secret for tenant {place} of its list: each {error}") from None
