"""redis-py's client, whose commands are calls of the server in this process."""

from typing import Any

import redis
from redis.client import Pipeline
from redis.connection import ConnectionPool

from duecourse.adapters.embedded.server import Server


class NoPool(ConnectionPool):
    """Connections that are never made."""


class EmbeddedRedis(redis.Redis):
    """A client of `server`."""

    def __init__(self, server: Server) -> None:
        super().__init__(connection_pool=NoPool(protocol=2))
        self._server = server

    def execute_command(self, *command: Any, **options: Any) -> Any:
        """Answer of the server, in the types of redis-py. Raises as Server.run."""
        reply = self._server.run(command)
        options.pop("keys", None)  # which is redis-py's own, for its cache
        shown = self.response_callbacks.get(command[0])  # type: ignore[no-untyped-call]
        return shown(reply, **options) if shown else reply

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> "EmbeddedPipeline":
        """Commands to be sent together."""
        made = EmbeddedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)
        made.of = self
        return made


class EmbeddedPipeline(Pipeline):
    """Commands that run in order when `execute` is called."""

    of: EmbeddedRedis

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Answers in order; with `raise_on_error` False, a ResponseError takes the place of its answer."""
        commands, self.command_stack = self.command_stack, []
        return [self._answer(command, options, raise_on_error) for command, options in commands]

    def _answer(self, command: tuple[Any, ...], options: dict[str, Any], raise_on_error: bool) -> Any:
        try:
            return self.of.execute_command(*command, **options)
        except redis.ResponseError as error:
            if raise_on_error:
                raise
            return error
