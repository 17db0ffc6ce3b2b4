"""The text of a script, put together of the verb's file and of what it needs of the modules.

A module is a file of `lua/modules` that returns a table of what it gives. `local shard = require 'shard'` at the
beginning of a line has the module made before the file's own code, within a function when that function runs. A
module's `begin` is run before the verb, after those of the modules that it requires; what it answers ends the script.

A script makes its functions anew at each run: so it holds those alone that the verb needs, and constants
(`local NAME = 1`, `local NAME = 'text'`) are written out wherever they are used. So is `fields.NAME`, which is of the
record's layout (layout.py) and of no module.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from duecourse.adapters.redis.layout import constants

COMMENT = re.compile(r"^ *--.*\n| +--.*$", re.MULTILINE)
REQUIRE = re.compile(r"require '(\w+)'")
FIRST = re.compile(rf"^local \w+ = {REQUIRE.pattern}", re.MULTILINE)
LATER = re.compile(rf"^ .*{REQUIRE.pattern}", re.MULTILINE)
LITERAL = re.compile(r"-?\d+|'[^'\n]*'")
CONSTANTS = re.compile(r"^local ([A-Z_]+(?:, [A-Z_]+)*) = ((?:-?\d+|'[^'\n]*'|, )+)\n", re.MULTILINE)
CONSTANT = re.compile(r"\b(?<![.'])(?:[a-z]+\.)?[A-Z][A-Z_]*\b(?!')")
GIVEN = re.compile(r"^  ([A-Z_]+) = \1,\n", re.MULTILINE)
FUNCTION_OR_GIVEN = re.compile(
    r"^(?:local function |function \w+\.)(\w+)\((?:.*\n)*?end\n|^  (\w+) = \2,\n", re.MULTILINE
)
FIELD = re.compile(r"\bfields\.(\w+)")
FIELDS = constants()
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


class BadModule(Exception):
    """A module is missing, requires itself, is made too late to begin, or speaks of a field that no record has."""


class Piece(NamedTuple):
    """A part of a file: names of which one keeps it in a script (none: it stays), its text, the names in it."""

    names: frozenset[str]
    text: str
    speaks_of: frozenset[str]

    def stays(self, names: set[str]) -> bool:
        """Whether a script that speaks of these names holds it."""
        return not self.names or not names.isdisjoint(self.names)


class Source:
    """A Lua file; a function that it speaks of itself is called `file:function`, and by others `file.function`."""

    def __init__(self, name: str, text: str, first: "Sequence[Source]", later: Sequence[str]) -> None:
        self.name = name
        self.order: list[Source] = list(dict.fromkeys(module for one in first for module in (*one.order, one)))
        """The modules that it is made of, each after those that it is made of itself."""
        self.later = later
        """The modules that its functions require."""
        self.constants = _constants(text)
        given = {f"{module.name}.{name}": value for module in first for name, value in module.constants.items()}
        known = self.constants | given
        code = CONSTANT.sub(lambda found: known.get(found[0], found[0]), GIVEN.sub("", CONSTANTS.sub("", text)))
        self._functions = {found[1] for found in FUNCTION_OR_GIVEN.finditer(code) if found[1]}
        self.begins = "begin" in self._functions
        self.pieces = list(self._pieces(code))

    def _pieces(self, code: str) -> Iterator[Piece]:
        at = 0
        for found in FUNCTION_OR_GIVEN.finditer(code):
            yield Piece(frozenset(), code[at : found.start()], self._spoken(code[at : found.start()]))
            yield self._function(found[1], found[0]) if found[1] else self._given(found[2], found[0])
            at = found.end()
        yield Piece(frozenset(), code[at:], self._spoken(code[at:]))

    def _function(self, name: str, text: str) -> Piece:
        names = {f"{self.name}.{name}", f"{self.name}:{name}"} if name != "begin" else ()
        return Piece(frozenset(names), text, self._spoken(text))

    def _given(self, name: str, text: str) -> Piece:
        names = {f"{self.name}.{name}"} if name in self._functions - {"begin"} else ()
        return Piece(frozenset(names), text, frozenset())

    def _spoken(self, text: str) -> frozenset[str]:
        return frozenset(f"{self.name}:{name}" if name in self._functions else name for name in NAME.findall(text))


class Modules:
    """The modules in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, Source] = {}

    def source(self, name: str, text: str, above: tuple[str, ...] = ()) -> Source:
        """A file that requires modules; `above` are those that require it. Raises BadModule."""
        text = FIELD.sub(lambda found: _field(name, found[1]), COMMENT.sub("", text))
        return Source(name, text, [self.read(one, above) for one in FIRST.findall(text)], LATER.findall(text))

    def read(self, name: str, above: tuple[str, ...] = ()) -> Source:
        """A module. Raises BadModule."""
        if name in above:
            raise BadModule(f"a module requires itself: {' > '.join((*above, name))}")
        if name not in self._read:
            path = self._folder / f"{name}.lua"
            if not path.is_file():
                raise BadModule(f"no module is called {name}")
            self._read[name] = self.source(name, path.read_text(), (*above, name))
        return self._read[name]


class Bundle:
    """A verb, and what it needs of the modules."""

    def __init__(self, verb: Source, modules: Modules) -> None:
        """Raises BadModule."""
        self._verb = verb
        self._modules = modules
        later = [modules.read(name) for name in verb.later]
        self._every = list(dict.fromkeys([*verb.order, *(module for one in later for module in (*one.order, one))]))
        self._names = self._needed()

    def script(self) -> str:
        """The script as Redis runs it: it makes each module when it is needed."""
        scope = self._verb.order
        made = [text for module in scope for text in (self._made(module, scope), _begun(module))]
        return "\n".join([*made, self._code(self._verb, scope)])

    def resident(self) -> str:
        """The same for a process that keeps it: it makes all modules, and returns the function that is the verb."""
        made = [self._made(module, self._every) for module in self._every]
        verb = self._code(self._verb, self._every)
        return "\n".join([*made, "return function()", *map(_begun, self._every), verb, "end"])

    def _needed(self) -> set[str]:
        """The names that anything speaks of that the script holds."""
        names: set[str] = set().union(*(piece.speaks_of for piece in self._verb.pieces))
        pieces = [piece for module in self._every for piece in module.pieces]
        while more := [piece for piece in pieces if piece.stays(names) and not piece.speaks_of <= names]:
            names.update(*(piece.speaks_of for piece in more))
        return names

    def _made(self, module: Source, scope: Sequence[Source]) -> str:
        return f"local made_{module.name} = (function()\n{self._code(module, scope)}\nend)()"

    def _code(self, source: Source, scope: Sequence[Source]) -> str:
        """What of a file the script holds; what it requires is taken from `scope`, or made where it stands."""
        verb = source is self._verb
        code = "".join(piece.text for piece in source.pieces if verb or piece.stays(self._names))
        return REQUIRE.sub(lambda found: self._module(found[1], scope), code)

    def _module(self, name: str, scope: Sequence[Source]) -> str:
        module = self._modules.read(name)
        if module in scope:
            return f"made_{name}"
        more = [one for one in (*module.order, module) if one not in scope]
        if any(one.begins for one in more):
            raise BadModule(f"{name} is made too late to begin: require it at the beginning of a line")
        made = "\n".join(self._made(one, [*scope, *more]) for one in more)
        return f"(function()\n{made}\nreturn made_{name} end)()"


def _field(module: str, name: str) -> str:
    if name not in FIELDS:
        raise BadModule(f"{module} speaks of fields.{name}, which no record has")
    return FIELDS[name]


def _constants(text: str) -> dict[str, str]:
    found = ((names.split(", "), LITERAL.findall(values)) for names, values in CONSTANTS.findall(text))
    return {name: value for names, values in found for name, value in zip(names, values, strict=True)}


def _begun(module: Source) -> str:
    if not module.begins:
        return ""
    return f"do local ended = made_{module.name}.begin() if ended ~= nil then return ended end end"
