"""The scripts' own form: Lua's bounds, and that each file requires what it speaks of."""

import re

import pytest
import redis

from duecourse.adapters.redis.bundle import COMMENT, CONSTANTS, FIRST, FUNCTION_OR_GIVEN, NAME, REQUIRE
from duecourse.adapters.redis.scripts import load
from duecourse.adapters.redis.texts import LUA, verbs

VERBS = {verb: (LUA / f"{verb}.lua").read_text() for verb in verbs()}
MODULES = {path.name[:-4]: path.read_text() for path in (LUA / "modules").iterdir()}
FILES = [*((name, VERBS[name]) for name in sorted(VERBS)), *((name, MODULES[name]) for name in sorted(MODULES))]
IDS = [*sorted(VERBS), *(f"modules/{name}" for name in sorted(MODULES))]
ROOM = 100
"""How many more local names each script must have room for, of the 200 that Lua takes in a function."""
TEXT = re.compile(r"'(?:\\.|[^'\\\n])*'")


def code_of(text: str) -> str:
    """Lua without comments and what stands in quotes."""
    return TEXT.sub("''", COMMENT.sub("", text))


def fields_of(module: str) -> set[str]:
    """What a module gives: exports, and the fields of its state."""
    code = code_of(MODULES[module])
    table = re.search(rf"^local {module} = {{(.*?)^}}", code, re.MULTILINE | re.DOTALL)
    state = re.findall(r"(\w+) = ", table[1]) if table else []
    functions = re.findall(rf"^function {module}\.(\w+)", code, re.MULTILINE)
    return {*(given for _, given in FUNCTION_OR_GIVEN.findall(code)), *state, *functions}


def required_by(text: str) -> set[str]:
    return set(REQUIRE.findall(COMMENT.sub("", text)))


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_each_script_has_room_for_more_names(redis_client: redis.Redis, verb: str) -> None:
    more = ", ".join(f"name_{i}" for i in range(ROOM))
    redis_client.script_load(f"local {more}\n{load(verb).text}")


@pytest.mark.parametrize(("name", "text"), FILES, ids=IDS)
def test_a_file_requires_the_modules_that_it_speaks_of_and_no_others(name: str, text: str) -> None:
    required = required_by(text)
    spoken = {found.partition(".")[0] for found in NAME.findall(code_of(text)) if "." in found}
    begun = {module for module in required if "begin" in fields_of(module)}
    assert required - spoken <= begun
    assert spoken & MODULES.keys() - {name} <= required


@pytest.mark.parametrize("text", [text for _, text in FILES], ids=IDS)
def test_a_file_speaks_of_what_modules_give(text: str) -> None:
    required = required_by(text)
    spoken = [found.split(".")[:2] for found in NAME.findall(code_of(text)) if "." in found]
    assert [
        f"{module}.{field}" for module, field in spoken if module in required and field not in fields_of(module)
    ] == []


@pytest.mark.parametrize("text", [text for _, text in FILES], ids=IDS)
def test_no_local_name_hides_a_module(text: str) -> None:
    required = set({*FIRST.findall(COMMENT.sub("", text))})
    code = re.sub(r"^local .* = require .*", "", code_of(text), flags=re.MULTILINE)
    declared = re.findall(
        r"\blocal (?!function)([\w, ]+)|\bfunction[ \w.]*\(([\w, ]*)\)|\bfor ([\w, ]+?) (?:in|=)", code
    )
    assert {name for group in declared for names in group for name in names.split(", ")} & required == set()


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
