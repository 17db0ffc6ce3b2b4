"""The scripts' texts: the build of the layer puts them together, else their first use in a process does.

`python -m duecourse.adapters.redis.texts FOLDER` writes the text of each verb into a folder. Only a built layer
has such a folder, for nobody changes its modules.
"""

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duecourse.adapters.redis.bundle import Bundle

LUA = Path(__file__).parent / "lua"
MADE = LUA / "made"
"""The folder of the texts in a built layer."""


def verbs() -> list[str]:
    """The name of every verb."""
    return sorted(path.stem for path in LUA.glob("*.lua"))


def script(verb: str) -> str:
    """The text of a verb as Redis runs it, with the modules that it requires."""
    try:
        return (MADE / f"{verb}.lua").read_text()
    except FileNotFoundError:
        return _bundle(verb).script()


@cache
def resident(verb: str) -> str:
    """The text of a verb for a process that keeps it (Bundle.resident)."""
    return _bundle(verb).resident()


def write(folder: Path) -> None:
    """Write the text of each verb into a new folder."""
    folder.mkdir()
    for verb in verbs():
        (folder / f"{verb}.lua").write_text(_bundle(verb).script())


def _bundle(verb: str) -> "Bundle":
    # Imported here: in a built layer no function needs it, and its patterns alone take milliseconds.
    from duecourse.adapters.redis.bundle import Bundle, Source, modules_in

    return Bundle(Source(verb, (LUA / f"{verb}.lua").read_text(), modules_in(LUA / "modules")))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
