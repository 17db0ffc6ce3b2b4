"""Scripts put together of modules: what each holds, in which order, and what is an error."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lupa import lua51

from duecourse.adapters.redis import texts
from duecourse.adapters.redis.bundle import BadModule, Bundle, Modules

FORMS = ("script", "resident")
"""The form for Redis, and that for a process that keeps it."""


BEGIN = "local function begin()\n  {}\nend\nreturn {{\n  begin = begin,\n}}\n"


class Folder:
    """Modules that a test writes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, **modules: str) -> None:
        for name, text in modules.items():
            (self._path / f"{name}.lua").write_text(text)

    def bundle(self, verb: str) -> Bundle:
        modules = Modules(self._path)
        return Bundle(modules.source("verb", verb), modules)

    def run(self, verb: str, form: str) -> Any:
        lua = lua51.LuaRuntime()
        lua.execute("seen = {}")
        made = lua.execute(getattr(self.bundle(verb), form)())
        answer = made() if form == "resident" else made
        return list(answer.values()) if lua51.lua_type(answer) == "table" else answer


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_private_names_of_two_modules_never_meet(folder: Folder, form: str) -> None:
    folder.write(
        **{
            name: f"local LIMIT = {limit}\nlocal count = {limit}0\nlocal function both()\n  return LIMIT + count\nend\n"
            "return {\n  both = both,\n}\n"
            for name, limit in (("one", 1), ("two", 2))
        }
    )
    verb = "local two = require 'two'\nlocal one = require 'one'\nlocal count = 7\n"
    assert folder.run(f"{verb}return {{ one.both(), two.both(), count }}\n", form) == [11, 22, 7]


@pytest.mark.parametrize("form", FORMS)
def test_a_module_sees_only_what_it_requires(folder: Folder, form: str) -> None:
    folder.write(one="return {}\n", two="return { sees = one ~= nil }\n")
    verb = "local one = require 'one'\nlocal two = require 'two'\nreturn { two.sees, one ~= nil }\n"
    assert folder.run(verb, form) == [False, True]


@pytest.mark.parametrize("form", FORMS)
def test_modules_are_made_once_after_those_that_they_require_whatever_the_order(folder: Folder, form: str) -> None:
    folder.write(
        last="local middle = require 'middle'\ntable.insert(seen, 'last')\nreturn { first = middle.first }\n",
        middle="local first = require 'first'\ntable.insert(seen, 'middle')\nreturn { first = first }\n",
        first="table.insert(seen, 'first')\nreturn {}\n",
    )
    requires = ["local last = require 'last'\n", "local first = require 'first'\n"]
    for order in (requires, requires[::-1]):
        verb = "".join([*order, "return { last.first == first, unpack(seen) }\n"])
        assert folder.run(verb, form) == [True, "first", "middle", "last"]


@pytest.mark.parametrize("form", FORMS)
def test_begin_runs_before_the_verb_and_after_those_of_what_is_required(folder: Folder, form: str) -> None:
    keys, bell = (BEGIN.format(f"table.insert(seen, '{name}')") for name in ("keys", "bell"))
    folder.write(keys=keys, bell=f"local keys = require 'keys'\n{bell}")
    assert folder.run("local bell = require 'bell'\nreturn seen\n", form) == ["keys", "bell"]


@pytest.mark.parametrize("form", FORMS)
def test_what_begin_answers_ends_the_script(folder: Folder, form: str) -> None:
    bell = BEGIN.format("error('begun')")
    folder.write(keys=BEGIN.format("return -10"), bell=f"local keys = require 'keys'\n{bell}")
    assert folder.run("local bell = require 'bell'\nerror('run')\n", form) == -10


def test_redis_makes_a_module_only_once_those_before_have_begun(folder: Folder) -> None:
    folder.write(usual=BEGIN.format("return 'answered'"), rest="error('made')\n")
    verb = "local usual = require 'usual'\nlocal rest = require 'rest'\n"
    assert folder.run(verb, "script") == "answered"


def test_a_module_that_a_function_requires_is_made_when_that_runs(folder: Folder) -> None:
    rare = "local part = require 'part'\ntable.insert(seen, 'made')\nreturn { part = part }\n"
    folder.write(part="return { value = 3 }\n", rare=rare)
    verb = "local function rarely()\n  return require 'rare'.part.value\nend\n"
    assert folder.run(f"{verb}return #seen\n", "script") == 0
    assert folder.run(f"{verb}return {{ rarely(), #seen }}\n", "script") == [3, 1]
    assert folder.run(f"{verb}return {{ rarely(), rarely(), #seen }}\n", "resident") == [3, 3, 1]


def test_a_resident_verb_makes_its_modules_once_and_begins_at_each_call(folder: Folder) -> None:
    folder.write(
        count="table.insert(seen, 'made')\nlocal calls = 0\nlocal function begin()\n  calls = calls + 1\nend\n"
        "local function said()\n  return calls\nend\nreturn {\n  begin = begin,\n  said = said,\n}\n"
    )
    lua = lua51.LuaRuntime()
    lua.execute("seen = {}")
    verb = lua.execute(folder.bundle("local count = require 'count'\nreturn #seen * 10 + count.said()\n").resident())
    assert [verb(), verb(), verb()] == [11, 12, 13]


def test_a_script_holds_the_functions_that_it_needs_and_no_others(folder: Folder) -> None:
    folder.write(
        many="local function spare()\n  return 1\nend\n\nlocal function inner()\n  return 2\nend\n\n"
        "local function used()\n  return inner()\nend\n\nlocal function unused()\n  return spare()\nend\n\n"
        "return {\n  inner = inner,\n  used = used,\n  unused = unused,\n}\n"
    )
    bundle = folder.bundle("local many = require 'many'\nlocal spare = many.used()\nreturn spare\n")
    for form in FORMS:
        text = getattr(bundle, form)()
        assert [part for part in ("function inner()", "function used()", "used = used") if part not in text] == []
        assert [part for part in ("unused", "function spare", "inner = inner") if part in text] == []


@pytest.mark.parametrize("form", FORMS)
def test_constants_are_written_out_and_nothing_is_made_of_them(folder: Folder, form: str) -> None:
    folder.write(
        layout="local SIZE, FORMAT = -9, '>I4'\nlocal LETTER = 65 -- A\n"
        "return {\n  SIZE = SIZE,\n  FORMAT = FORMAT,\n  LETTER = LETTER,\n}\n"
    )
    verb = (
        "local layout = require 'layout'\nlocal OWN = 4\nlocal t = { {} }\nt[1].OWN = 'OWN'\n"
        "return { layout.SIZE, layout.FORMAT, layout.LETTER, OWN, t[1].OWN }\n"
    )
    assert folder.run(verb, form) == [-9, ">I4", 65, 4, "OWN"]
    text = getattr(folder.bundle(verb), form)()
    assert [part for part in ("layout.", "SIZE = SIZE", "local OWN") if part in text] == []


def test_a_module_that_is_not_there_is_an_error(folder: Folder) -> None:
    with pytest.raises(BadModule, match="no module is called other"):
        folder.bundle("local other = require 'other'\n")


def test_a_cycle_is_an_error_that_names_it(folder: Folder) -> None:
    folder.write(a="local b = require 'b'\n", b="local c = require 'c'\n", c="local b = require 'b'\n")
    with pytest.raises(BadModule, match="a > b > c > b"):
        folder.bundle("local a = require 'a'\n")


def test_what_begins_cannot_be_made_late(folder: Folder) -> None:
    folder.write(late=BEGIN.format("return nil"))
    with pytest.raises(BadModule, match="late is made too late to begin"):
        folder.bundle("local function rarely()\n  return require 'late'\nend\n").script()


def test_threads_that_ask_for_scripts_at_once_each_get_the_whole() -> None:
    switched = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5):
            texts._modules.cache_clear()
            with ThreadPoolExecutor(8) as pool:
                found = list(pool.map(texts.script, ["claim", "settle", "add", "sweep"] * 4))
            assert len(set(found)) == 4
    finally:
        sys.setswitchinterval(switched)
