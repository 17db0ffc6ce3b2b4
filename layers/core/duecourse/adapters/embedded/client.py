"""redis-py's client of the server in this process: its commands go no further than a call."""

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
        """What the server answers, as redis-py shows it. Raises as Server.run."""
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
    """Commands that are run one after the other, when all are given."""

    of: EmbeddedRedis

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """The answers, in place of one the error that it raised where that is not to be raised."""
        commands, self.command_stack = self.command_stack, []
        return [self._answer(command, options, raise_on_error) for command, options in commands]

    def _answer(self, command: tuple[Any, ...], options: dict[str, Any], raise_on_error: bool) -> Any:
        try:
            return self.of.execute_command(*command, **options)
        except redis.ResponseError as error:
            if raise_on_error:
                raise
            return error
