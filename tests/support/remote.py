"""A stack whose functions are deployed elsewhere: the harness's gateway and bridge call them by Lambda's Invoke API."""

import asyncio
import json
from typing import Any

from duecourse_local.demo.stage import Mail, Stage
from duecourse_local.harness.aws.invocation import Answer, Invocation
from duecourse_local.harness.options import Options
from duecourse_local.harness.stack import Stack
from duecourse_local.harness.stack_parts import Services
from tests.support.capabilities import Emulator
from tests.support.deploy import Deployment


class RemoteFunctions:
    """Stands for duecourse_local.harness.aws.functions.Functions; `names` are the deployed functions' by logical id."""

    def __init__(self, client: Any, names: Any) -> None:
        self._client = client
        self._names = names

    def find(self, name: str) -> str:
        """The deployed function's name."""
        return str(self._names.get(name, name))

    async def invoke(self, name: str, invocation: Invocation, within_s: float | None = None) -> Answer:
        """Run a function and wait for its answer."""
        answering = asyncio.to_thread(self._invoke, self.find(name), invocation.payload)
        return await asyncio.wait_for(answering, within_s)

    def _invoke(self, name: str, payload: bytes) -> Answer:
        answer = self._client.invoke(FunctionName=name, Payload=payload)
        with answer["Payload"] as body:
            return Answer(body.read(), answer.get("FunctionError"))

    def send(self, name: str, invocation: Invocation) -> None:
        """Have a function run, without its answer."""
        self._client.invoke(FunctionName=self.find(name), Payload=invocation.payload, InvocationType="Event")

    def pids(self) -> dict[str, list[int]]:
        """None of this machine's."""
        return {}

    async def warm(self, *_: object) -> None:
        """They are warm when they are."""

    async def keep_measuring(self) -> None:
        """Lambda does."""

    async def close(self) -> None:
        """They stay."""


class RemoteServices(Services):
    """The harness's parts, less functions and resources."""

    remote: RemoteFunctions

    async def _make_functions(self) -> None:
        await super()._make_functions()
        self.functions = self.remote  # type: ignore[assignment]

    async def _fill_aws(self, emulator: Any) -> None:
        """CloudFormation has."""

    def _feed(self) -> None:
        """Lambda does."""


def remote_stack(session: Any, deployment: Deployment, store: str, endpoint: str) -> Stack:
    """A stack before the deployed functions, on the same ledger."""
    namespace = {"DUECOURSE_NAMESPACE": deployment.stack}
    options = Options(aws=endpoint, store=store, tick=0, environment=namespace)
    stack = Stack(options)
    stack._services = services = RemoteServices(options, print, print)
    services.remote = RemoteFunctions(session.client("lambda"), deployment.names)
    return stack


class RemoteStage(Stage):
    """The stage, whose mail is where the emulator tells it."""

    emulator: Emulator
    past = 0
    """How many e-mails the emulator had taken before the stage was set."""

    def mails(self) -> list[Mail]:
        """Every e-mail sent so far."""
        return self._mails()[self.past :]

    def texts(self) -> None:
        """These emulators do not tell."""

    def begin(self, emulator: Emulator) -> None:
        """Set the stage: what was sent before is none of the stories'."""
        self.emulator = emulator
        self.past = len(self._mails())

    def _mails(self) -> list[Mail]:
        told = self._http.request("GET", self.stack.aws + self.emulator.mails).json()["messages"]
        if self.emulator.name == "ministack":
            return [Mail(m["To"][0], m["Subject"], m["BodyText"]) for account in told.values() for m in account]
        return [Mail(m["Destination"]["ToAddresses"][0], m["Subject"], json.dumps(m["Body"])) for m in told]
