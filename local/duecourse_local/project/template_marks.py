"""The product's part of a clone, without the functions that `duecourse new` wrote into it.

The build of the wheel (hatch_build.py) reads this file on its own: it imports the standard library alone.
"""

import re

BEGIN = "# duecourse new {name}: begin\n"
END = "# duecourse new {name}: end\n"
"""Comments around each part of the template that belongs to a function of the user's own."""
OWN = re.compile(r"^ *# duecourse new (\w+): begin\n.*?^ *# duecourse new \1: end\n\n?", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^ +CodeUri: functions/(\w+)$", re.MULTILINE)


def without_own(template: str) -> str:
    """The template without the parts between such comments."""
    return OWN.sub("", template)


def functions_of(template: str) -> list[str]:
    """Folders in `functions/` that the template names."""
    return CODE.findall(template)
