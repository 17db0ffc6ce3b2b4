"""Ids and names: their patterns, and a fresh id."""

import os

ID_PATTERN = r"^[A-Za-z0-9._:@-]{1,128}$"

ANY_ID_PATTERN = r"^[A-Za-z0-9._:@-]{1,128}(~[0-9]{1,15}\.[0-9]{1,10}~[nd])?$"
"""Pattern of an id that a user gave, or of a completion notification's."""

MARK = "~"
"""Character in the id of each completion notification, and in no user's id."""

NAME_PATTERN = r"^[A-Za-z0-9._:@-]{1,64}$"
"""Pattern of names of queues, kinds and reminders: no slash and no brace, which keys need for themselves."""


def new_id() -> str:
    """A fresh task id: 24 hexadecimal digits, 96 random bits."""
    return os.urandom(12).hex()
