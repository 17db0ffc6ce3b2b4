"""The scripts' own form: Lua's bounds, and the names that included files export."""

import re
from importlib.resources import files

import pytest
import redis

from duecourse.adapters.redis.scripts import EXPORTS, load

LUA = files("duecourse.adapters.redis") / "lua"
VERBS = sorted(path.name.removesuffix(".lua") for path in LUA.iterdir() if path.name.endswith(".lua"))
INCLUDED = sorted(path.name for path in (LUA / "included").iterdir())
ROOM = 15
"""How many more local names each script must have room for, of the 200 that Lua takes in a function."""


@pytest.mark.parametrize("verb", VERBS)
def test_each_script_has_room_for_more_names(redis_client: redis.Redis, verb: str) -> None:
    more = ", ".join(f"name_{i}" for i in range(ROOM))
    redis_client.script_load(f"local {more}\n{load(verb).text}")


@pytest.mark.parametrize("name", INCLUDED)
def test_an_included_file_exports_each_name_once_and_sets_it(name: str) -> None:
    text = (LUA / "included" / name).read_text()
    exported = " ".join(EXPORTS.findall(text)).split()
    assert len(exported) == len(set(exported))
    code = re.sub(r"--.*", "", text)
    assert [one for one in exported if not re.search(rf"(function {one}\(|\b{one}\b[\w, ]* = )", code)] == []
    assert [one for one in exported if re.search(rf"^local (function )?[\w, ]*\b{one}\b", code, re.MULTILINE)] == []
