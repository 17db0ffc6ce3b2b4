"""Place of an error: file and line of the innermost frame in a user's own code."""

import os
import re
import sys
import traceback

from duecourse import errors

LONGEST_PLACE = 80
"""Maximum length of a place, in characters: a longer file name loses its front."""
FOREIGN = (
    *(os.path.join(os.path.dirname(str(module.__file__)), "") for module in (traceback, errors)),
    "/var/runtime/",
    "/opt/python/",
)
"""Folders of Python, of duecourse, and of Lambda's runtime and layers."""
LIBRARIES = re.compile(r"[/\\](site|dist)-packages[/\\]")
UNFIT = re.compile(r"[^\w./-]")
"""Characters of a file name that a place does not show: a space would end it, a line break forge a line."""


def place_of(error: BaseException) -> str:
    """Place of an error as `app.py:9`; "" if no frame is in a user's own code, or a call failed."""
    if isinstance(error, errors.CallFailed):
        return ""
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        name = frame.f_code.co_filename
        if _is_own(name):
            number = f":{line}"
            return UNFIT.sub("_", _relative(name))[len(number) - LONGEST_PLACE :] + number
    return ""


def _is_own(name: str) -> bool:
    return not (name.startswith((*FOREIGN, "<")) or LIBRARIES.search(name))


def _relative(name: str) -> str:
    """The file from the folder that it is imported from: the folders above may name a person or a machine."""
    folders = (os.path.join(os.path.abspath(folder), "") for folder in sys.path)
    above = max((one for one in folders if name.startswith(one)), key=len, default="")
    return (name.removeprefix(above) if above else os.path.basename(name)).replace(os.sep, "/")
