"""Scripts linked of modules: what each holds, in which order, what is an error, and when a checkout links them."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lupa import lua51

from duecourse.ledger import script_calls
from duecourse.ledger.layout import VERSION
from lua_linker import BadModule, Linked, Modules, Source, linked, modules_in, write
from tests.support.source import LAYER

FORMS = ("script", "resident")
"""The form for Redis, and that for a process that keeps it."""


BEGIN = "function {}.begin()\n  {}\nend\n"


class Folder:
    """Modules that a test writes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, **modules: str) -> None:
        for name, text in modules.items():
            (self._path / f"{name}.lua").write_text(text)

    def link(self, verb: str) -> Linked:
        return Linked(Source("verb", verb, Modules(self._path)))

    def run(self, verb: str, form: str) -> Any:
        lua = lua51.LuaRuntime()
        lua.execute("seen = {}")
        made = lua.execute(getattr(self.link(verb), form)())
        answer = made() if form == "resident" else made
        return list(answer.values()) if lua51.lua_type(answer) == "table" else answer


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_private_names_of_two_modules_never_meet(folder: Folder, form: str) -> None:
    folder.write(
        **{
            name: f"local LIMIT = {limit}\nlocal count = {limit}0\n"
            f"function {name}.both()\n  return LIMIT + count\nend\n"
            for name, limit in (("one", 1), ("two", 2))
        }
    )
    assert folder.run("local count = 7\nreturn { one.both(), two.both(), count }\n", form) == [11, 22, 7]


@pytest.mark.parametrize("form", FORMS)
def test_a_module_calls_what_it_gives_by_the_same_name(folder: Folder, form: str) -> None:
    folder.write(
        one="function one.half(n)\n  return n / 2\nend\nfunction one.quarter(n)\n  return one.half(one.half(n))\nend\n"
    )
    assert folder.run("return one.quarter(8)\n", form) == 2


@pytest.mark.parametrize("form", FORMS)
def test_the_state_of_a_module_is_there_for_all_and_false_until_it_is_set(folder: Folder, form: str) -> None:
    folder.write(
        keys=BEGIN.format("keys", "keys.NOW, keys.seen = 7, 0"),
        bell="function bell.ring()\n  keys.seen = keys.seen + 1\nend\n",
    )
    verb = "bell.ring()\nbell.ring()\nreturn { keys.NOW, keys.seen, keys.full }\n"
    assert folder.run(verb, form) == [7, 2, False]


@pytest.mark.parametrize("form", FORMS)
def test_modules_are_made_once_after_those_that_they_speak_of_whatever_the_order(folder: Folder, form: str) -> None:
    folder.write(
        last="local name = middle.name()\ntable.insert(seen, 'last')\nfunction last.name()\n  return name\nend\n",
        middle="local name = first.name()\ntable.insert(seen, 'middle')\nfunction middle.name()\n  return name\nend\n",
        first="table.insert(seen, 'first')\nfunction first.name()\n  return 'name'\nend\n",
    )
    for answer in ("last.name() == first.name()", "first.name() == last.name()"):
        assert folder.run(f"return {{ {answer}, unpack(seen) }}\n", form) == [True, "first", "middle", "last"]


@pytest.mark.parametrize("form", FORMS)
def test_a_module_that_no_function_of_the_script_speaks_of_is_not_made(folder: Folder, form: str) -> None:
    folder.write(
        bell="function bell.ring()\n  return 'rang'\nend\n\nfunction bell.hang()\n  return clock.now()\nend\n",
        clock="error('made')\nfunction clock.now()\n  return 1\nend\n",
    )
    assert folder.run("return bell.ring()\n", form) == "rang"


@pytest.mark.parametrize("form", FORMS)
def test_begin_runs_before_the_verb_and_after_those_of_what_is_spoken_of(folder: Folder, form: str) -> None:
    keys = BEGIN.format("keys", "table.insert(seen, 'keys')")
    bell = BEGIN.format("bell", "table.insert(seen, 'bell')\n  bell.at = keys.NOW")
    folder.write(keys=keys, bell=bell)
    assert folder.run("return { bell.at, unpack(seen) }\n", form) == [False, "keys", "bell"]


@pytest.mark.parametrize("form", FORMS)
def test_what_begin_answers_ends_the_script(folder: Folder, form: str) -> None:
    bell = BEGIN.format("bell", "error('begun' .. keys.NOW)")
    folder.write(keys=BEGIN.format("keys", "return -10"), bell=bell)
    assert folder.run("error('run' .. bell.at)\n", form) == -10


def test_what_is_required_first_begins_before_another_module_is_made(folder: Folder) -> None:
    folder.write(usual=BEGIN.format("usual", "return 'answered'"), rest="error('made')\nfunction rest.of()\nend\n")
    assert folder.run("require 'usual'\nrest.of()\n", "script") == "answered"


def test_a_module_that_a_function_requires_is_made_when_that_runs(folder: Folder) -> None:
    rare = "table.insert(seen, 'made')\nfunction rare.value()\n  return part.value()\nend\n"
    folder.write(part="function part.value()\n  return 3\nend\n", rare=rare)
    verb = "local function rarely()\n  if not rare then\n    require 'rare'\n  end\n  return rare.value()\nend\n"
    assert folder.run(f"{verb}return #seen\n", "script") == 0
    assert folder.run(f"{verb}return {{ rarely(), rarely(), #seen }}\n", "script") == [3, 3, 1]
    assert folder.run(f"{verb}return {{ rarely(), rarely(), #seen }}\n", "resident") == [3, 3, 1]
    folder.write(other="error('made')\nfunction other.value()\nend\n")
    never = "local function never()\n  require 'other'\n  return other.value()\nend\n"
    assert folder.run(f"{verb}{never}return {{ rarely(), #seen, false and never }}\n", "script") == [3, 1, False]


def test_a_resident_verb_makes_its_modules_once_and_begins_at_each_call(folder: Folder) -> None:
    folder.write(
        count="table.insert(seen, 'made')\nlocal calls = 0\nfunction count.begin()\n  calls = calls + 1\nend\n"
        "function count.said()\n  return calls\nend\n"
    )
    lua = lua51.LuaRuntime()
    lua.execute("seen = {}")
    verb = lua.execute(folder.link("return #seen * 10 + count.said()\n").resident())
    assert [verb(), verb(), verb()] == [11, 12, 13]


def test_a_script_holds_the_functions_that_it_needs_and_no_others(folder: Folder) -> None:
    folder.write(
        many="local function spare()\n  return 1\nend\n\nfunction many.inner()\n  return 2\nend\n\n"
        "function many.used()\n  return many.inner()\nend\n\nfunction many.unused()\n  return spare()\nend\n"
    )
    verb = folder.link("local spare = many.used()\nreturn spare\n")
    for form in FORMS:
        text = getattr(verb, form)()
        assert [part for part in ("function many_inner()", "function many_used()", "used = ") if part not in text] == []
        assert [part for part in ("unused", "function spare", "inner = ") if part in text] == []


@pytest.mark.parametrize("form", FORMS)
def test_constants_are_written_out_and_nothing_is_made_of_them(folder: Folder, form: str) -> None:
    folder.write(layout="local SIZE, FORMAT = -9, '>I4'\nlocal LETTER = 65 -- A\n")
    verb = (
        "local OWN = 4\nlocal t = { {} }\nt[1].OWN = 'OWN'\n"
        "return { layout.SIZE, layout.FORMAT, layout.LETTER, OWN, t[1].OWN }\n"
    )
    assert folder.run(verb, form) == [-9, ">I4", 65, 4, "OWN"]
    text = getattr(folder.link(verb), form)()
    assert [part for part in ("layout", "SIZE", "local OWN") if part in text] == []


@pytest.mark.parametrize("form", FORMS)
def test_fields_of_the_record_are_written_out_and_others_are_an_error(folder: Folder, form: str) -> None:
    folder.write()
    assert folder.run("return fields.VERSION\n", form) == VERSION
    with pytest.raises(BadModule, match=r"verb speaks of fields\.LATEST, which no record has"):
        folder.link("return fields.LATEST\n")


def test_a_module_that_is_not_there_is_an_error(folder: Folder) -> None:
    with pytest.raises(BadModule, match="no module is called other"):
        folder.link("require 'other'\n")


def test_a_cycle_is_an_error_that_names_it(folder: Folder) -> None:
    folder.write(**{one: f"function {one}.at()\n  return {other}.at()\nend\n" for one, other in ("ab", "bc", "cb")})
    with pytest.raises(BadModule, match="a > b > c > b"):
        folder.link("return a.at()\n")


def test_what_begins_cannot_be_made_late(folder: Folder) -> None:
    folder.write(late=BEGIN.format("late", "return nil"))
    with pytest.raises(BadModule, match="late is made too late to begin"):
        folder.link("local function rarely()\n  require 'late'\nend\n")


@pytest.mark.slow
def test_threads_that_ask_for_scripts_at_once_each_get_the_whole() -> None:
    switched = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5):
            modules_in.cache_clear()
            linked.cache_clear()
            with ThreadPoolExecutor(8) as pool:
                found = list(pool.map(script_calls.script_text, ["claim", "settle", "add", "sweep"] * 4))
            assert len(set(found)) == 4
    finally:
        sys.setswitchinterval(switched)


@pytest.mark.slow
def test_the_linker_writes_both_texts_of_each_verb(tmp_path: Path) -> None:
    write(tmp_path / "linked")
    written = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.lua")}
    assert written == {
        **{f"linked/{verb}.lua": script_calls.script_text(verb) for verb in script_calls.verbs()},
        **{f"linked/resident/{verb}.lua": script_calls.cached_script_text(verb) for verb in script_calls.verbs()},
    }


READ = """
from duecourse.ledger import script_calls as texts
both = (texts.script_text, texts.cached_script_text)
print([[text_of(verb).count("'edited'") for text_of in both] for verb in ("add", "show")])
"""


@pytest.mark.slow
def test_a_checkout_runs_a_file_of_lua_as_it_was_edited(tmp_path: Path) -> None:
    layer = shutil.copytree(LAYER, tmp_path / "core", ignore=shutil.ignore_patterns("__pycache__"))
    with (layer / "duecourse/ledger/lua/add.lua").open("a") as file:
        file.write("local edited = 'edited'\n")
    with (layer / "duecourse/ledger/lua/modules/shard.lua").open("a") as file:
        file.write("local edited = 'edited'\n")
    environment = {**os.environ, "PYTHONPATH": str(layer)}
    done = subprocess.run([sys.executable, "-c", READ], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[[2, 2], [1, 1]]\n"
