"""Known name that a user most likely meant by an unknown one."""

from collections.abc import Iterable

LIKE = 0.6
"""Least likeness, 0 to 1, of a name that an error suggests."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like this one, "" for none."""
    from difflib import get_close_matches  # for errors alone

    return next(iter(get_close_matches(name, known, 1, LIKE)), "")


def alike(name: str, known: Iterable[str]) -> list[str]:
    """Every known name that is like this one, the likest first."""
    from difflib import get_close_matches

    names = list(known)
    return get_close_matches(name, names, len(names), LIKE) if names else []
