"""The scripts' own form: Lua's bounds, and that each file speaks of what there is."""

import re
from struct import Struct

import pytest
import redis
from lupa import lua51

from duecourse.ledger.script_calls import LUA, load, verbs
from lua_linker import COMMENT, CONSTANTS, NAME

VERBS = {verb: (LUA / f"{verb}.lua").read_text() for verb in verbs()}
MODULES = {path.name[:-4]: path.read_text() for path in (LUA / "modules").iterdir()}
FILES = [*((name, VERBS[name]) for name in sorted(VERBS)), *((name, MODULES[name]) for name in sorted(MODULES))]
IDS = [*sorted(VERBS), *(f"modules/{name}" for name in sorted(MODULES))]
ROOM = 100
"""How many more local names each script must have room for, of the 200 that Lua takes in a function."""
TEXT = re.compile(r"'(?:\\.|[^'\\\n])*'")


GLOBALS = {
    "ARGV", "KEYS", "bit", "cjson", "error", "ipairs", "math", "next", "pairs", "pcall", "redis", "string", "struct",
    "table", "tonumber", "tostring", "unpack",
}  # fmt: skip


class Compiled:
    """What Lua 5.1 makes of a script (`string.dump`), read for the global names in it."""

    GET_GLOBAL, SET_GLOBAL = 5, 7

    def __init__(self, dump: bytes) -> None:
        self._dump = dump
        self._at = 12

    def global_names(self) -> set[str]:
        """The names that this function, and those in it, get or set."""
        self._text()
        self._skip(4 + 4 + 4)
        code = [self._number("I") for _ in range(self._number("i"))]
        constants = [self._constant() for _ in range(self._number("i"))]
        found = {constants[one >> 14].decode() for one in code if one & 63 in (self.GET_GLOBAL, self.SET_GLOBAL)}
        found.update(*[self.global_names() for _ in range(self._number("i"))])
        self._skip(4 * self._number("i"))
        for _ in range(self._number("i")):
            self._text()
            self._skip(4 + 4)
        for _ in range(self._number("i")):
            self._text()
        return found

    def _constant(self) -> bytes:
        sizes = {0: 0, 1: 1, 3: 8}  # nil, boolean, number
        kind = self._number("B")
        return self._text() if kind not in sizes else self._skip(sizes[kind])

    def _text(self) -> bytes:
        return self._skip(self._number("Q"))[:-1]

    def _number(self, form: str) -> int:
        [number] = Struct(f"<{form}").unpack(self._skip(Struct(f"<{form}").size))
        return int(number)

    def _skip(self, size: int) -> bytes:
        self._at += size
        return self._dump[self._at - size : self._at]


def code_of(text: str) -> str:
    """Lua without comments and what stands in quotes."""
    return TEXT.sub("''", COMMENT.sub("", text))


def given_by(module: str) -> set[str]:
    """What a module gives: functions, constants, and the state that it sets."""
    code = code_of(MODULES[module])
    functions = re.findall(rf"^function {module}\.(\w+)", code, re.MULTILINE)
    constants = [name for names, _ in CONSTANTS.findall(COMMENT.sub("", MODULES[module])) for name in names.split(", ")]
    places = re.findall(r"^ *((?:[\w.]+,\s+)*[\w.]+) = ", code, re.MULTILINE)
    return {*functions, *constants, *re.findall(rf"\b{module}\.(\w+)", " ".join(places))}


def spoken_of(text: str) -> set[tuple[str, str]]:
    """The modules, and of each a name, that a file speaks of."""
    pairs = {(found.partition(".")[0], found.partition(".")[2]) for found in NAME.findall(code_of(text))}
    return {(module, name) for module, name in pairs if name and module in MODULES}


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_each_script_has_room_for_more_names(redis_client: redis.Redis, verb: str) -> None:
    more = ", ".join(f"name_{i}" for i in range(ROOM))
    redis_client.script_load(f"local {more}\n{load(verb).text}")


@pytest.mark.parametrize("text", [text for _, text in FILES], ids=IDS)
def test_a_file_speaks_of_what_modules_give(text: str) -> None:
    assert {f"{module}.{name}" for module, name in spoken_of(text) if name not in given_by(module)} == set()


@pytest.mark.parametrize("text", [text for _, text in FILES], ids=IDS)
def test_no_local_name_hides_a_module(text: str) -> None:
    declared = re.findall(
        r"\blocal (?!function)([\w, ]+)|\bfunction[ \w.]*\(([\w, ]*)\)|\bfor ([\w, ]+?) (?:in|=)", code_of(text)
    )
    names = {name for group in declared for names in group for name in names.split(", ")}
    assert names & {module for module, _ in spoken_of(text)} == set()


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_a_script_asks_for_no_global_name_but_those_of_the_server(verb: str) -> None:
    dump = lua51.LuaRuntime(encoding=None).eval(b"function(text) return string.dump(assert(loadstring(text))) end")
    assert Compiled(dump(load(verb).text.encode())).global_names() - GLOBALS == set()


@pytest.mark.parametrize("text", [text for _, text in FILES], ids=IDS)
def test_a_function_stands_above_those_that_speak_of_it(text: str) -> None:
    code = code_of(text)
    first = {
        name: re.search(rf"([\w.]+ |)(?<![\w.]){name}\(", code)
        for name in re.findall(r"^local function (\w+)", code, re.MULTILINE)
    }
    assert {name: found and found[1] for name, found in first.items()} == dict.fromkeys(first, "function ")


@pytest.mark.parametrize("text", [text for _, text in FILES], ids=IDS)
def test_no_constant_is_named_within_a_longer_text_in_quotes(text: str) -> None:
    code = COMMENT.sub("", text)
    named = {name for names, _ in CONSTANTS.findall(code) for name in names.split(", ")}
    quoted = {word for one in TEXT.findall(code) for word in NAME.findall(one) if one != f"'{word}'"}
    assert named & quoted == set()
