"""Every part of the stack, started in order within one event loop and stopped in reverse."""

import asyncio
import json
import os
import socket
import tempfile
from asyncio.subprocess import Process
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from duecourse import settings
from duecourse.errors import InvalidSettings

from ..errors import HarnessError
from ..project.bundle import SCHEDULES
from . import redis_server
from .addresses import SCHEMES, check_free, listen, listen_for_page, url_of, without_password
from .asgi_server import serve
from .aws import authorizer, emulator, secrets
from .aws import emulator as aws_emulator
from .aws.emulator import deliverer
from .aws.events import ON_EXPIRED, first_events
from .aws.functions import FunctionHost, Functions
from .aws.http_api import Routes, http_api
from .aws.lambda_api import lambda_api
from .aws.schedules import Schedules
from .aws.sources import Feeds
from .bridge import BridgeProcess, ThreadBridge
from .children import stop
from .environment import AMQP, EGRESS_ALLOW, SEAL_KEY, TARGETS, TENANT_FROM, Environment, host_settings, with_packages
from .function_processes import Pool, ProcessRules, StartLimit
from .functions_in_process import SharedProcess
from .guard import Guard
from .intrinsics import Addresses
from .logs import Logs
from .options import LOOPBACK, Clock, Egress, Options, Precision, Secrets
from .state import StateFolder
from .template import Function, Template

AWS_OPTION = "--aws-port, or use what is there with --aws"
FOLDER_WITHIN = 1.0
STORE_WITHIN = 5.0
OWN_STORE_WITHIN = 60.0
"""Seconds: a large append-only file takes a while to load."""


class Services:
    """The parts of one stack.

    `say(service, address)` is called for each ready service, `notice(text)` for each problem.
    """

    def __init__(self, options: Options, say: Callable[[str, str], None], notice: Callable[[str], None]) -> None:
        self._options = options
        self._say = say
        self._notice = notice
        self._redis_pid: int | None = None
        self._shared: SharedProcess | None = None
        self._seals: dict[str, str] = {}
        self.bridge: BridgeProcess | ThreadBridge | None = None
        self.travelled: Callable[[], str] | None = None

    async def start(self, parts: AsyncExitStack) -> None:
        """Start everything; `parts` stops it. Raises HarnessError."""
        self._parts = parts
        self._check_settings()
        self._open_folder()
        self._check_ports()
        api = self._listen(self._options.port, "--port")
        invokes = self._listen(self._options.lambda_port, "--lambda-port")
        self.api, self.lambda_url = url_of(api), url_of(invokes)
        self.page = await self._serve_page()
        self.store = await self._start_store()
        ours = await self._start_aws()
        await self._make_functions()
        await self._keep_secrets(ours)
        await self._fill_aws_and_warm(ours)
        guard = Guard(self._options.allow_hosts)
        self.schedules = Schedules(self.described, self.functions, self._options.tick)
        moved = self._shared.clock(self.functions, self.schedules, self._say) if self._shared else []
        await serve(lambda_api(self.functions, *moved), invokes, guard, parts)
        self._say("lambda", self.lambda_url)
        authorize = authorizer.authorizer(self._options.auth, self._state.path)
        gateway = http_api(Routes(self.described), self.functions, authorize, self._logs.of("api"))
        await serve(gateway, api, guard, parts)
        self._say("api", self.api)
        parts.push_async_callback(self.functions.close)  # before the servers, which then have nobody to wait for
        await self._start_bridge()
        self._keep_time()
        self._feed()
        self._state.announce(self.addresses())

    def addresses(self) -> dict[str, Any]:
        """Addresses of all services, and the processes."""
        pids = {"bridge": self.bridge.pid if self.bridge else None, "redis": self._redis_pid}
        return {
            "page": self.page,
            "api": self.api,
            "lambda": self.lambda_url,
            "aws": self.aws,
            "store": self.store,
            "amqp": self._settings_overrides().get(AMQP, ""),
            "egress": self._options.egress,
            "clock": self._options.clock,
            "auth": self._options.auth,
            "pids": {**pids, "functions": self.functions.pids()},
        }

    def _settings_overrides(self) -> dict[str, str]:
        """The product's settings that win over the template's."""
        amqp = {AMQP: self._options.amqp} if self._options.amqp else {}
        return {**host_settings(), **amqp, **self._seals, **self._options.environment}

    def _check_settings(self) -> None:
        """Return if every function and the bridge would accept the settings. Raises HarnessError."""
        given = {**self._settings_overrides(), "DUECOURSE_STORE": ""}
        try:
            found = settings.parse(given)
        except InvalidSettings as error:
            raise HarnessError(str(error)) from error
        if found.tenant_from and self._options.auth == authorizer.Auth.NONE:
            raise HarnessError(
                f"{TENANT_FROM} needs --auth iam or --auth jwt, without which no caller is known: give one to `up`, "
                "or unset the variable"
            )
        if found.tenant_header and self._options.auth != authorizer.Auth.NONE:
            raise HarnessError(
                f"DUECOURSE_TENANT_HEADER is set, but with --auth {self._options.auth} each caller proves its tenant: "
                "leave one of them out"
            )
        if given.get(TENANT_FROM) == "" and self._options.auth != authorizer.Auth.NONE:
            raise HarnessError(
                f"{TENANT_FROM} is empty, which turns tenants and roles off: "
                f"with --auth {self._options.auth}, give it a rule, or unset it"
            )

    def _open_folder(self) -> None:
        path = self._options.state or Path(self._parts.enter_context(tempfile.TemporaryDirectory(prefix="duecourse-")))
        self._state = StateFolder(path, patience_s=FOLDER_WITHIN)
        self._parts.callback(self._state.close)
        self._seals = {SEAL_KEY: self._state.make_seal_key()}
        self._logs = Logs(self._state.path / "logs", on_line=self._options.on_line)
        self._parts.callback(self._logs.close)

    def _check_ports(self) -> None:
        options = self._options
        aws = {} if self._aws_endpoint() else {AWS_OPTION: options.aws_port}
        check_free({"--port": options.port, "--lambda-port": options.lambda_port, **aws})

    def _aws_endpoint(self) -> str | None:
        return self._options.aws or os.environ.get("AWS_ENDPOINT_URL")

    def _listen(self, port: int, option: str) -> socket.socket:
        return self._parts.enter_context(listen(port, option))

    async def _serve_page(self) -> str:
        """Serve the operators' page, and return its address; "" for none. It waits for the API, which starts later."""
        if self._options.page is None:
            return ""
        sock = self._parts.enter_context(listen_for_page(self._options.page_port, "--page-port"))
        made = self._options.page(self.api, self._state.path, sock)
        await serve(made.application, sock, None, self._parts)
        self._say("page", made.address)
        return made.address

    async def _start_store(self) -> str:
        url, within = redis_server.given_store(self._options.store, self._options.clock), STORE_WITHIN
        if url and url.startswith(SCHEMES):
            return url  # opened once the functions are known that share it
        if url is None:
            process, url = await redis_server.start(self._state, self._logs.of("redis"))
            self._redis_pid, within = process.pid, OWN_STORE_WITHIN
            self._watch_child("redis", process)
        await redis_server.wait_until_ready(url, within)
        if self._redis_pid is None:
            needs_events = redis_server.turns_events_on(self._options.precision, self._settings_overrides())
            self._parts.push_async_callback(
                await redis_server.check_given_redis(url, self._notice, needs_events=needs_events)
            )
        self._say("store", without_password(url))
        return url

    async def _start_aws(self) -> bool:
        """Set the address; True if moto was started there, which takes a while to answer."""
        if given := self._aws_endpoint():
            self.aws = given
            return False
        sock = listen(self._options.aws_port, AWS_OPTION)
        self.aws = url_of(sock)
        environment, names = Environment(self.aws, "", "").base(), self._options.allow_hosts
        process = await aws_emulator.start(sock, environment, self._logs.of("aws"), names)
        self._watch_child("the AWS emulator", process)
        return True

    def _secrets(self) -> dict[str, str]:
        """URLs by the names of their secrets, at runtime; none at deployment."""
        if self._options.secrets == Secrets.DEPLOY:
            return {}
        broker = self._settings_overrides().get(AMQP)
        return {secrets.STORE: self.store, **({secrets.BROKER: broker} if broker else {})}

    async def _keep_secrets(self, ours: bool) -> None:
        """Store the secrets, before a warm function may read them."""
        if values := self._secrets():
            if ours:
                await aws_emulator.wait_until_ready(self.aws)
            await asyncio.to_thread(secrets.put_secrets, self.aws, values)
            self._say("secrets", "  ".join([self.aws, *values]))

    async def _fill_aws_and_warm(self, ours: bool) -> None:
        """Create resources and warm functions at the same time; if AWS fails, stop the warming."""
        warming = asyncio.create_task(self._warm())
        try:
            await self._fill_aws(ours)
            await warming
        finally:
            warming.cancel()
            await asyncio.wait((warming,))

    async def _warm(self) -> None:
        """Have each function warm that starts with the stack, and print the progress."""
        names: list[str] = []
        every = {function.logical_id for function in self.described}
        wanted = every if self._options.warm is None else every.intersection(self._options.warm)

        def warmed(name: str) -> None:
            names.append(name)
            self._say("function", f"{name}  ({len(names)} of {len(wanted)})")

        await self.functions.warm(wanted, warmed)

    async def _fill_aws(self, ours: bool) -> None:
        if ours:
            await aws_emulator.wait_until_ready(self.aws)
        made = await asyncio.to_thread(emulator.create_resources, self._template, self.aws)
        if await asyncio.to_thread(secrets.put_signing_secret, self.aws, self._state.path, self.described):
            self._say("signing", "webhooks are signed; the secret: duecourse signing")
        self._say("aws", "  ".join([self.aws, *made]))

    async def _make_functions(self) -> None:
        options = self._options
        parameters = {**self._secrets_named(), **options.given(), **authorizer.parameters(options.auth)}
        self._template = Template(options.template, Addresses(self.api, self.aws, self.store), parameters)
        self.described = await with_packages(self._template.functions, options.packages, options.progress)
        overrides = options.linger() | self._settings_overrides()
        self._environment = Environment(self.aws, self.lambda_url, self.store, overrides, options.pure_python)
        self._starts = StartLimit()
        self._first = first_events(self.described, self._environment.settings)
        self._say("egress", self._egress())
        self._open_shared()
        self.functions = Functions(
            [self._pool(function) for function in self.described],
            destine=deliverer(self.aws, self._notice),
            notice=self._notice,
            log=self._logs.of("lambda"),
            retry_waits=options.retry_waits,
        )
        self._parts.push_async_callback(self.functions.close)
        if self._shared:
            self._shared.wire(self.functions)
        for kind, name in self.functions.missing(json.loads(overrides.get(TARGETS) or "{}")):
            self._notice(f"{TARGETS}.{kind}: template.yaml has no function {name}, so tasks of this kind will fail")

    def _egress(self) -> str:
        """Destinations that tasks may call, in words."""
        listed = self._settings_overrides().get(EGRESS_ALLOW)
        if listed is None and self._options.egress == Egress.LOOPBACK:
            return f"tasks may call public addresses and this machine ({LOOPBACK}); deployed, public addresses alone"
        return "tasks may call public addresses" + (
            f", and what {EGRESS_ALLOW} lists: {listed}" if listed else " alone"
        )

    def _secrets_named(self) -> dict[str, str]:
        """The template's parameters of secrets."""
        kept = self._secrets()
        named = {"RedisUrlSecret": secrets.STORE, "AmqpUrlSecret": secrets.BROKER if secrets.BROKER in kept else ""}
        return {"Secrets": self._options.secrets, "SigningSecret": secrets.SIGNING, **(named if kept else {})}

    def _open_shared(self) -> None:
        """Open a store that only one process may, and take the functions in."""
        if not self.store.startswith(SCHEMES):
            return
        if self._options.freeze:
            raise HarnessError(
                f"--freeze stops processes, but with {self.store} functions are threads: leave --freeze out"
            )
        if self._options.precision == Precision.LINGER:
            raise HarnessError(
                f"with {self.store} the bridge is a thread of this process: leave --precision linger out"
            )
        if self._options.secrets == Secrets.RUNTIME:
            raise HarnessError(
                f"--secrets runtime is for a Redis: with {self.store} there is no login to keep secret. Leave it out"
            )
        shared = SharedProcess(self.described, self._environment, self._logs, self._options.clock)
        self.travelled = shared.travelled
        self._shared = self._parts.enter_context(shared)
        self._say("store", f"{self.store}  in this process only; the functions are its threads")

    def _pool(self, function: Function) -> FunctionHost:
        first = self._first.get(function.name)
        if self._shared:
            return self._shared.pool(function, first)
        rules = ProcessRules(self._options.init_limit, self._options.freeze, self._options.idle_limit)
        return Pool(function, self._environment, self._logs.of(function.name), rules, self._starts, first)

    async def _start_bridge(self) -> None:
        function = next((f for f in self.described if f.code.name == ON_EXPIRED), None)
        if self._options.precision != Precision.BRIDGE or function is None or self._options.clock == Clock.TRAVEL:
            return
        self.bridge = self._make_bridge(function)
        self._parts.push_async_callback(self.bridge.stop)
        if await self.bridge.start():
            self._say("bridge", f"rings invoke {function.name}")

    def _make_bridge(self, function: Function) -> BridgeProcess | ThreadBridge:
        if self._shared:
            return self._shared.bridge(function, self._notice)
        return BridgeProcess(self._environment.of_bridge(function), self._logs.of("bridge"), self._notice)

    def _keep_time(self) -> None:
        self._keep(self.functions.keep_measuring())
        self._keep(self._logs.keep_bounded())
        if self._options.clock == Clock.TRAVEL:
            return
        at_once = self._options.precision == Precision.LINGER or any(
            (function.code / SCHEDULES).is_file() for function in self.described
        )
        self._keep(self.schedules.keep(at_once=at_once))
        for problem in self.schedules.problems:
            self._notice(f"A schedule is not kept: {problem}")
        if self.schedules.described:
            self._say("schedules", self.schedules.described)

    def _feed(self) -> None:
        amqp = self._settings_overrides().get(AMQP, "")
        feeds = Feeds(self.described, self.functions, self.aws, amqp, self._notice)
        for duty in feeds.duties():
            self._keep(duty)
        if feeds.described:
            self._say("queues", feeds.described)

    def _keep(self, duty: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until the stack stops; the user gets a notice if it ends before."""
        task, name = asyncio.create_task(duty), getattr(duty, "__qualname__", "")

        def tell(ended: asyncio.Task[None]) -> None:
            if not ended.cancelled() and (error := ended.exception()):
                self._notice(f"A PART OF THE STACK IS DEAD ({name}): {error!r}")

        task.add_done_callback(tell)

        async def end() -> None:
            task.cancel()
            await asyncio.wait((task,))

        self._parts.push_async_callback(end)

    def _watch_child(self, name: str, process: Process) -> None:
        """Stop a child at the end; the user gets a notice if it dies before."""
        self._parts.push_async_callback(stop, process)

        async def watch() -> None:
            code = await process.wait()
            self._notice(f"{name.upper()} IS DEAD (exit {code}): see its log")

        self._keep(watch())
