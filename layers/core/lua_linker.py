"""Links the scripts of the ledger: each verb's text is made of its file and of what that needs of the modules.

`python lua_linker.py FOLDER` writes every text into a new folder. The builds of the layer and of the wheel run it, so
an installed package has the texts and no linker. In a checkout the package imports this module and links what it
runs: a contributor edits a file of Lua and runs a test.

A file speaks of a module, a file of `lua/modules`, by its name: `record.open(data)`. The module gives what it defines
by its own name: `function record.open(data)`, and state such as `shard.NOW`. All else in it is its own. Modules are
made before the verb, each after those that it speaks of. A module's `begin` is run then; what it answers ends the
script.

`require 'fast_add'` at the beginning of a line has that module made and begun before all others. Within a function, it
has the module made when that function runs.

A script makes its functions again at each run, so it holds only those that the verb needs. Constants
(`local NAME = 1`, `local NAME = 'text'`) are written out in each place. So is `fields.NAME`, which is of the
record's layout (layout.py) and of no module.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from duecourse.ledger.layout import constants

COMMENT = re.compile(r"^ *--.*\n| +--.*$", re.MULTILINE)
REQUIRE = re.compile(r"\brequire '(\w+)'")
FIRST = re.compile(rf"^{REQUIRE.pattern}\n", re.MULTILINE)
LITERAL = re.compile(r"-?\d+|'[^'\n]*'")
CONSTANTS = re.compile(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = ((?:-?\d+|'[^'\n]*'|, )+)\n", re.MULTILINE)
FUNCTION = re.compile(r"^(?:local function |function \w+\.)(\w+)\((?:.*\n)*?end\n", re.MULTILINE)
NAME = re.compile(r"(?<![\w.'])[A-Za-z_]\w*(?:\.\w+)?(?!')")
FIELDS = constants()
LUA = Path(__file__).parent / "duecourse" / "ledger" / "lua"
"""The folder of the verbs' files, and in it that of the modules."""
SHORT = {
    "call": "redis.call", "pack": "struct.pack", "unpack_struct": "struct.unpack",
    "byte": "string.byte", "sub": "string.sub", "match": "string.match",
}  # fmt: skip
"""Names that every file may use for what most of them call: a local one is found faster."""


class BadModule(Exception):
    """A module is missing, speaks of itself through others, begins too late, or speaks of a field no record has."""


class Piece(NamedTuple):
    """A part of a file: the function that it is ("" for what always stays), its text, the names in it."""

    name: str
    text: str
    speaks_of: frozenset[str]


class Source:
    """A Lua file; each function in it has a name, `file.function`, whether or not it is its own."""

    def __init__(self, name: str, text: str, modules: "Modules", above: tuple[str, ...] = ()) -> None:
        """Raises BadModule; `above` are those that speak of it."""
        self.name = name
        text = COMMENT.sub("", text)
        self.constants = _constants(text)
        self.first = FIRST.findall(text)
        code = FIRST.sub("", CONSTANTS.sub("", text))
        self.late = REQUIRE.findall(code)
        spoken = {found.partition(".")[0] for found in NAME.findall(code) if "." in found} & modules.names - {name}
        self.modules = [modules.read(one, above) for one in dict.fromkeys([*self.first, *self.late, *sorted(spoken)])]
        """The modules that it speaks of."""
        known = {f"{one.name}.{constant}": value for one in self.modules for constant, value in one.constants.items()}
        code = NAME.sub(lambda found: (known | self.constants).get(found[0]) or self._field(found[0]), code)
        self._functions = {found[1] for found in FUNCTION.finditer(code)}
        self.begins = "begin" in self._functions
        self.pieces = list(self._pieces(code))

    def _field(self, name: str) -> str:
        if not name.startswith("fields."):
            return name
        if name[7:] not in FIELDS:
            raise BadModule(f"{self.name} speaks of {name}, which no record has")
        return FIELDS[name[7:]]

    def _pieces(self, code: str) -> Iterator[Piece]:
        at = 0
        for found in FUNCTION.finditer(code):
            yield self._piece("", code[at : found.start()])
            yield self._piece(f"{self.name}.{found[1]}", found[0])
            at = found.end()
        yield self._piece("", code[at:])

    def _piece(self, name: str, text: str) -> Piece:
        names = (f"{self.name}.{one}" if one in self._functions else one for one in NAME.findall(text))
        return Piece(name, text, frozenset(names))


class Modules:
    """The modules in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.names = {path.stem for path in folder.iterdir()}
        self._read: dict[str, Source] = {}

    def read(self, name: str, above: tuple[str, ...]) -> Source:
        """A module; `above` are those that speak of it. Raises BadModule."""
        if name in above:
            raise BadModule(f"a module speaks of itself: {' > '.join((*above, name))}")
        if name not in self.names:
            raise BadModule(f"no module is called {name}")
        if name not in self._read:
            text = (self._folder / f"{name}.lua").read_text()
            self._read[name] = Source(name, text, self, (*above, name))
        return self._read[name]


class Linked:
    """A verb, and what it needs of the modules."""

    def __init__(self, verb: Source) -> None:
        """Raises BadModule."""
        self._verb = verb
        self._modules = {module.name: module for module in _in_order(verb)}
        self._names = self._reached()
        self._needed = self._used(self._names)
        self._early = self._used(self._reached(without=verb.late))
        self._late = [module for module in self._needed if module not in self._early]
        if late := [module.name for module in self._late if module.begins]:
            raise BadModule(f"{late[0]} is made too late to begin: require it at the beginning of a line")
        self._asked = {f"{module.name}.begin" for module in self._needed}
        """Functions that others than their own module ask for."""
        for source in (*self._needed, verb):
            spoken = {name for piece in _kept(source, self._names) for name in piece.speaks_of}
            self._asked |= {name for name in spoken if name.partition(".")[0] != source.name}

    def script(self) -> str:
        """The script as Redis runs it: it makes each module when it is needed."""
        made = [line for module in self._early for line in (_declared(module), self._made(module), *_begun(module))]
        return "\n".join([*self._short(), *map(_declared, self._late), *made, self._code(self._made_late)])

    def resident(self) -> str:
        """The same for a process that keeps it: it makes all modules, and returns the function that is the verb."""
        made = [line for module in self._needed for line in (_declared(module), self._made(module))]
        begun = [line for module in self._needed for line in _begun(module)]
        return "\n".join([*self._short(), *made, "return function()", *begun, self._code(lambda _: ""), "end"])

    def _short(self) -> list[str]:
        return [f"local {name} = {value}" for name, value in SHORT.items() if name in self._names]

    def _reached(self, without: Iterable[str] = ()) -> set[str]:
        """The names that anything speaks of that the script holds, but by way of some modules."""
        required = {f"{name}.begin" for name in (*self._verb.first, *self._verb.late)}
        names = required.union(*(piece.speaks_of for piece in self._verb.pieces))
        while True:
            used = [module for module in self._used(names) if module.name not in without]
            begun = (f"{module.name}.begin" for module in used)
            more = names.union(begun, *(piece.speaks_of for module in used for piece in _kept(module, names)))
            if more == names:
                return {name for name in names if name.partition(".")[0] not in without}
            names = more

    def _used(self, names: Iterable[str]) -> list[Source]:
        spoken = {name.partition(".")[0] for name in names if "." in name}
        return [module for name, module in self._modules.items() if name in spoken]

    def _made(self, module: Source) -> str:
        """Code that makes a module: a table of the functions that others call, and of its state."""
        own, pieces = f"{module.name}.", _kept(module, self._names)
        functions = [piece.name.removeprefix(own) for piece in pieces if piece.text.startswith("function ")]
        code = "".join(piece.text for piece in pieces).replace(f"function {own}", f"local function {own}")
        if functions:
            code = re.sub(rf"(?<![\w.]){own}({'|'.join(functions)})\b", rf"{module.name}_\1", code)
        given = [f"{name} = {module.name}_{name}" for name in functions if own + name in self._asked]
        state = self._names - {piece.name for piece in module.pieces} - {f"{own}begin"}
        given += [f"{name.removeprefix(own)} = false" for name in sorted(state) if name.startswith(own)]
        return f"do\n{code}\n{module.name} = {{ {', '.join(given)} }}\nend"

    def _made_late(self, name: str) -> str:
        """Code that makes a module which the verb requires, and those that it speaks of, but what is made already."""
        spoken = {module.name for module in _in_order(self._modules[name])} | {name}
        return "\n".join(self._made(module) for module in self._late if module.name in spoken)

    def _code(self, making: Callable[[str], str]) -> str:
        """The verb's code, with what makes modules where it requires them."""
        return REQUIRE.sub(lambda found: making(found[1]), "".join(piece.text for piece in self._verb.pieces))


def _in_order(source: Source) -> dict[Source, None]:
    """The modules that a file is made of, each after those that it speaks of."""
    order: dict[Source, None] = {}
    for module in source.modules:
        order |= {**_in_order(module), module: None}
    return order


def _kept(source: Source, names: set[str]) -> list[Piece]:
    """The parts of a file that a script holds where these names are spoken of."""
    return [piece for piece in source.pieces if not piece.name or piece.name in names]


def _constants(text: str) -> dict[str, str]:
    found = ((names.split(", "), LITERAL.findall(values)) for names, values in CONSTANTS.findall(text))
    return {name: value for names, values in found for name, value in zip(names, values, strict=True)}


def _declared(module: Source) -> str:
    return f"local {module.name}"


def _begun(module: Source) -> list[str]:
    """The line that begins a module, where it has anything to begin."""
    ending = f"do local ended = {module.name}.begin() if ended ~= nil then return ended end end"
    return [ending] if module.begins else []


modules_in = cache(Modules)
"""The modules of a folder, read once by a process."""


@cache
def linked(verb: str) -> Linked:
    """A verb, linked. Raises BadModule."""
    return Linked(Source(verb, (LUA / f"{verb}.lua").read_text(), modules_in(LUA / "modules")))


def write(folder: Path) -> None:
    """Write both texts of each verb into a new folder."""
    resident = folder / "resident"
    resident.mkdir(parents=True)
    for path in LUA.glob("*.lua"):
        verb = linked(path.stem)
        (folder / path.name).write_text(verb.script())
        (resident / path.name).write_text(verb.resident())


if __name__ == "__main__":
    write(Path(sys.argv[1]))
