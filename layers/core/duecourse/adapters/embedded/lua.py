"""Lua scripts run in this process, as Redis runs them."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from duecourse.adapters.embedded.commands import Commands, Reply, number
from duecourse.adapters.redis.scripts import resident
from duecourse.errors import StoreMisused

LIBRARIES = Path(__file__).parent / "libraries.lua"


class ScriptFailed(Exception):
    """A script ended by an error of its own."""


class Lua:
    """A Lua 5.1 with the commands as `redis.call`, and the libraries that Redis has."""

    def __init__(self, commands: Commands) -> None:
        lua = _lua()
        self._failure: type[Exception] = lua.LuaError
        self._type = lua.lua_type
        self._runtime = lua.LuaRuntime(encoding=None, register_eval=False, register_builtins=False)
        self._commands = commands
        self._scripts: dict[str, Any] = {}
        self._table = self._runtime.table_from
        self._set_up()

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
        scope = self._runtime.globals()
        scope[b"KEYS"], scope[b"ARGV"] = self._runtime.table_from(keys), self._runtime.table_from(arguments)
        try:
            return self._reply(self._scripts[sha]())
        except self._failure as error:
            raise ScriptFailed(str(error)) from error

    def _set_up(self) -> None:
        scope, table = self._runtime.globals(), self._runtime.table_from
        libraries = self._runtime.execute(LIBRARIES.read_bytes())
        for name, library in libraries.items():
            scope[name] = library
        scope[b"redis"] = table({b"call": self._call})

    def _call(self, name: bytes, *arguments: Any) -> Any:
        """Run a command for a script; lupa raises its error as it is where the script was started."""
        reply = self._commands[name](*[one if type(one) is bytes else number(one) for one in arguments])
        if type(reply) is list:
            return self._listed(reply)
        return False if reply is None else reply

    def _listed(self, reply: list[Reply]) -> Any:
        return self._table([False if one is None else self._listed(one) if type(one) is list else one for one in reply])

    def _reply(self, value: Any) -> Reply:
        """Value of Lua in the form of a Redis answer: fractions are cut off, true is 1, false and nil are None."""
        if self._type(value) == "table":
            return [self._reply(one) for one in value.values()]
        if isinstance(value, (bool, float, int)):
            return int(value) or (0 if value is not False else None)
        return value  # type: ignore[no-any-return]


@cache
def _lua() -> Any:
    try:
        from lupa import lua51  # type: ignore[import-untyped]
    except ImportError as error:
        raise StoreMisused("memory:// and leveldb:// need Lua: pip install 'duecourse[embedded]'") from error
    return lua51
