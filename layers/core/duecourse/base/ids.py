"""Ids and names: their patterns, and a fresh id."""

import os
from collections.abc import Iterator

ID_PATTERN = r"^[A-Za-z0-9._:@-]{1,128}$"

ANY_ID_PATTERN = r"^[A-Za-z0-9._:@-]{1,128}(~[0-9]{1,15}\.[0-9]{1,10}~[nd])?$"
"""Pattern of an id that a user gave, or of a completion notification's."""

MARK = "~"
"""Character in the id of each completion notification, and in no user's id."""

NAME_PATTERN = r"^[A-Za-z0-9._:@-]{1,64}$"
"""Pattern of names of queues, kinds and reminders: no slash and no brace, which keys need for themselves."""


SIZE = 12
"""Random bytes of an id."""
DRAWN = 100
"""Number of ids that a batch draws at once."""


def new_id() -> str:
    """A fresh task id: 24 hexadecimal digits, 96 random bits."""
    return os.urandom(SIZE).hex()


def new_ids() -> Iterator[str]:
    """Fresh ids without end, for one batch: drawn many at once, each takes a fifth of the time."""
    while True:
        drawn = os.urandom(SIZE * DRAWN).hex()
        yield from (drawn[first : first + 2 * SIZE] for first in range(0, len(drawn), 2 * SIZE))
