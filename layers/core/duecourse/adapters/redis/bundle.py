"""The text of a script, put together of the verb's file and of what it needs of the modules.

A module is a file of `lua/modules` that returns a table of what it gives. `local shard = require 'shard'` at the
beginning of a line has the module made before the file's own code, within a function when that function runs. A
module's `begin` is run before the verb, after those of the modules that it requires; what it answers ends the script.

A script makes its functions anew at each run: so it holds those alone that the verb needs, and constants of a module
(`local NAME = 1`, `local NAME = 'text'`) are written out wherever they are used.
"""

import re
from collections.abc import Iterator, Sequence
from importlib.resources.abc import Traversable

LITERAL = r"(?:-?\d+|'[^'\n]*')"
COMMENT = re.compile(r"^ *--.*\n| +--.*$", re.MULTILINE)
REQUIRE = re.compile(r"^( *)(.*?)require '(\w+)'", re.MULTILINE)
CONSTANTS = re.compile(rf"^local ([A-Z_]+(?:, [A-Z_]+)*) = ({LITERAL}(?:, {LITERAL})*)\n", re.MULTILINE)
FUNCTION = re.compile(r"^(?:local function |function \w+\.)(\w+)\(.*?^end\n", re.MULTILINE | re.DOTALL)
EXPORT = re.compile(r"^  (\w+) = \1,\n", re.MULTILINE)
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
WORD = re.compile(rf"'(?:\\.|[^'\\\n])*'|(?<!\w)(?<!(?<!\.)\.){NAME.pattern}")
"""A name that is no field of what is no name, or a text in quotes."""


class BadModule(Exception):
    """A module is missing, requires itself, or is made too late to begin."""


class Source:
    """A Lua file."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        text = COMMENT.sub("", text)
        required = REQUIRE.findall(text)
        self.first = [module for indent, _, module in required if not indent]
        """The modules that it is made of."""
        self.later = [module for indent, _, module in required if indent]
        """The modules that its functions require."""
        self.constants = {
            name: value
            for names, values in CONSTANTS.findall(text)
            for name, value in zip(names.split(", "), re.findall(LITERAL, values), strict=True)
        }
        self.code = CONSTANTS.sub("", text)
        code = EXPORT.sub("", self.code)
        own = set(FUNCTION.findall(code))
        self.functions = {found[1]: self._names(found[0], own) for found in FUNCTION.finditer(code)}
        """The names that each of its functions speaks of; a function of the same file is called `file:name`."""
        self.names = {*self._names(FUNCTION.sub("", code), own), f"{name}.begin"}
        """The names that the rest of it speaks of."""
        self.begins = "begin" in self.functions

    def without_others(self, names: set[str]) -> str:
        """Its code without the functions that are not among these names."""
        given = {name for name in self.functions if f"{self.name}.{name}" in names}
        kept = given | {name for name in self.functions if f"{self.name}:{name}" in names}
        dropped = self.functions.keys() - given | self.constants.keys()
        code = EXPORT.sub(lambda found: "" if found[1] in dropped else found[0], self.code)
        return FUNCTION.sub(lambda found: found[0] if found[1] in kept else "", code)

    def _names(self, code: str, own: set[str]) -> set[str]:
        return {f"{self.name}:{name}" if name in own else name for name in NAME.findall(code)}


class Modules:
    """The modules in one folder."""

    def __init__(self, folder: Traversable) -> None:
        self._folder = folder
        self._read: dict[str, Source] = {}

    def order(self, names: Sequence[str]) -> list[Source]:
        """These modules and all that they are made of, each after those. Raises BadModule."""
        return list(dict.fromkeys(self._reach(names, ())))

    def _reach(self, names: Sequence[str], above: tuple[str, ...]) -> Iterator[Source]:
        for name in names:
            if name in above:
                raise BadModule(f"a module requires itself: {' > '.join((*above, name))}")
            module = self._module(name)
            yield from self._reach(module.first, (*above, name))
            yield module

    def _module(self, name: str) -> Source:
        if name not in self._read:
            path = self._folder / f"{name}.lua"
            if not path.is_file():
                raise BadModule(f"no module is called {name}")
            self._read[name] = Source(name, path.read_text())
        return self._read[name]


class Bundle:
    """A verb, and what it needs of the modules."""

    def __init__(self, verb: Source, modules: Modules) -> None:
        """Raises BadModule."""
        self._verb = verb
        self._modules = modules
        self._every = modules.order([*verb.first, *verb.later])
        self._constants = {
            f"{module.name}.{name}": value for module in self._every for name, value in module.constants.items()
        }
        self._names = self._needed()

    def script(self) -> str:
        """The script as Redis runs it: it makes each module when it is needed."""
        scope = self._modules.order(self._verb.first)
        made = [text for module in scope for text in (self._made(module, scope), _begun(module))]
        return "\n".join([*made, self._linked(self._verb, self._verb.code, scope)])

    def resident(self) -> str:
        """The same for a process that keeps it: it makes all modules, and returns the function that is the verb."""
        made = [self._made(module, self._every) for module in self._every]
        verb = self._linked(self._verb, self._verb.code, self._every)
        return "\n".join([*made, "return function()", *map(_begun, self._every), verb, "end"])

    def _needed(self) -> set[str]:
        """The names that anything speaks of that is needed."""
        functions = {
            f"{module.name}{mark}{name}": names
            for module in self._every
            for name, names in module.functions.items()
            for mark in ".:"
        }
        names = self._verb.names.union(*self._verb.functions.values(), *(module.names for module in self._every))
        new = names
        while new:
            new = set().union(*(functions[name] for name in new if name in functions)) - names
            names |= new
        return names

    def _made(self, module: Source, scope: Sequence[Source]) -> str:
        code = self._linked(module, module.without_others(self._names), scope)
        return f"local made_{module.name} = (function()\n{code}\nend)()"

    def _linked(self, source: Source, code: str, scope: Sequence[Source]) -> str:
        """Code with constants written out; what it requires is taken from `scope`, or made where it stands."""
        constants = self._constants | source.constants
        written = WORD.sub(lambda name: constants.get(name[0], name[0]), code)
        return REQUIRE.sub(lambda found: f"{found[1]}{found[2]}{self._module(found[3], scope)}", written)

    def _module(self, name: str, scope: Sequence[Source]) -> str:
        more = [module for module in self._modules.order([name]) if module not in scope]
        if any(module.begins for module in more):
            raise BadModule(f"{name} is made too late to begin: require it at the beginning of a line")
        made = [self._made(module, [*scope, *more]) for module in more]
        return " ".join(["(function()", *made, f"return made_{name} end)()"]) if more else f"made_{name}"


def _begun(module: Source) -> str:
    if not module.begins:
        return ""
    return f"do local ended = made_{module.name}.begin() if ended ~= nil then return ended end end"
