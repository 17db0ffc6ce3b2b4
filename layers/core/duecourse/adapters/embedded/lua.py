"""Lua scripts run in this process, as Redis runs them."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from duecourse.adapters.embedded.commands import Commands, Reply, number
from duecourse.adapters.redis.scripts import resident
from duecourse.errors import StoreMisused

LIBRARIES = Path(__file__).parent / "libraries.lua"


class ScriptFailed(Exception):
    """A script ended by an error of its own."""


MANY = 4_000
"""The most values that cross between Python and Lua in one piece: more overflow the stack of Lua."""


class Lua:
    """A Lua 5.1 with the commands as `redis.call`, and the libraries that Redis has."""

    def __init__(self, commands: Commands) -> None:
        lua = _lua()
        self._failure: type[Exception] = lua.LuaError
        self._runtime = lua.LuaRuntime(
            encoding=None, register_eval=False, register_builtins=False, unpack_returned_tuples=True
        )
        self._commands = commands.by_name
        self._scripts: dict[str, Any] = {}
        self._scope, self._table = self._runtime.globals(), self._runtime.table_from
        self._table_type = type(self._scope)
        libraries = self._runtime.execute(LIBRARIES.read_bytes())
        for name in (b"struct", b"cjson", b"bit"):
            self._scope[name] = libraries[name]
        call = libraries[b"calling"](self._call)
        self._scope[b"redis"] = self._table({b"call": call, b"pcall": call})
        self._parts = libraries[b"parts"]

    def load(self, sha: str, text: bytes) -> None:
        """Compile a script; one of ours makes its modules here, once. Raises ScriptFailed if its text is not Lua."""
        kept = resident(sha)
        try:
            self._scripts[sha] = self._runtime.execute(kept.encode()) if kept else self._runtime.compile(text)
        except self._failure as error:
            raise ScriptFailed(str(error)) from error

    def has(self, sha: str) -> bool:
        """Presence of a script with this SHA-1."""
        return sha in self._scripts

    def run(self, sha: str, keys: Sequence[bytes], arguments: Sequence[bytes]) -> Reply:
        """Answer of a script. Raises ScriptFailed, or the error of a command that the script called."""
        self._scope[b"KEYS"], self._scope[b"ARGV"] = self._table(keys), self._table(arguments)
        try:
            return self._reply(self._scripts[sha]())
        except self._failure as error:
            raise ScriptFailed(str(error)) from error

    def _call(self, name: bytes, *arguments: Any) -> Any:
        """Run a command for a script; lupa raises its error as it is where the script was started.

        A short list is returned as True and its values, for libraries.lua to put into a table.
        """
        reply = self._commands[name](*[one if type(one) is bytes else number(one) for one in arguments])
        if type(reply) is list:
            values = [False if one is None else self._listed(one) if type(one) is list else one for one in reply]
            return (True, *values) if len(values) < MANY else self._table(values)
        return False if reply is None else reply

    def _listed(self, reply: list[Reply]) -> Any:
        return self._table([False if one is None else self._listed(one) if type(one) is list else one for one in reply])

    def _reply(self, value: Any) -> Reply:
        """Value of Lua in the form of a Redis answer: fractions are cut off, true is 1, false and nil are None."""
        if type(value) is self._table_type:
            return [one if type(one) is bytes else self._reply(one) for one in self._values(value)]
        if value is None or type(value) is bytes:
            return value
        return int(value) or (0 if value is not False else None)

    def _values(self, table: Any) -> Iterable[Any]:
        """Values of a list, in one piece where they are few enough."""
        values: Iterable[Any] = self._parts(table)[1:] if 0 < len(table) < MANY else table.values()
        return values


@cache
def _lua() -> Any:
    try:
        from lupa import lua51  # type: ignore[import-untyped]
    except ImportError as error:
        raise StoreMisused("memory:// and leveldb:// need Lua: pip install 'duecourse[embedded]'") from error
    return lua51
