"""Every part of the stack, started in order within one event loop and stopped in reverse."""

import asyncio
import tempfile
from asyncio.subprocess import Process
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from starlette.applications import Starlette

from local import aws_emulator, redis_server, resources
from local.bridge import Bridge
from local.children import stop
from local.destinations import deliver
from local.environment import Surroundings, host_settings
from local.functions import Functions
from local.http_api import http_api
from local.identity import Addresses
from local.lambda_api import lambda_api
from local.logs import Logs
from local.options import Options
from local.pool import Pool
from local.problems import HarnessError
from local.routes import Routes
from local.schedules import Schedules
from local.serving import serve
from local.sockets import LOOPBACK, free_port, listen, url_of
from local.state import StateFolder
from local.template import Function, Template
from local.worker import Rules

ON_EXPIRED = "on_expired"
"""The folder of the function that the bridge invokes."""
STORE_WITHIN = 5.0


class Services:
    """The parts of one stack.

    `say(service, address)` hears what is ready, `notice(text)` what went wrong.
    """

    def __init__(self, options: Options, say: Callable[[str, str], None], notice: Callable[[str], None]) -> None:
        self._options = options
        self._say = say
        self._notice = notice
        self._stopping = False
        self._redis: Process | None = None
        self.bridge: Bridge | None = None

    async def start(self, parts: AsyncExitStack) -> None:
        """Start everything; `parts` stops it. Raises HarnessError."""
        options = self._options
        self._state = self._folder(parts)
        self._logs = Logs(self._state.path / "logs", echo=options.echo)
        parts.callback(self._logs.close)
        api, invokes = listen(options.port, "--port"), listen(options.lambda_port, "--lambda-port")
        parts.callback(api.close)
        parts.callback(invokes.close)
        self.api, self.lambda_url = url_of(api), url_of(invokes)
        self.store, self.aws = await asyncio.gather(self._start_store(parts), self._start_aws(parts))
        self._read_template()
        self.functions = self._make_functions()
        parts.push_async_callback(serve(lambda_api(self.functions), invokes, parts))
        await self._start_functions(parts)
"""
