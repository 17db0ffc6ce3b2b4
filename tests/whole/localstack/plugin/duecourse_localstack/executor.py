"""A Lambda executor for LocalStack that runs a function in a process of this machine, under AWS's own client.

It proves nothing about LocalStack's own containers; the service around it (versions, event sources, throttles, retries,
destinations, schedules) is LocalStack's.
"""

import json
import os
import subprocess
import sys
import threading
import time
from queue import Empty

from localstack.services.lambda_.invocation.executor_endpoint import StatusErrorException
from localstack.services.lambda_.invocation.lambda_models import FunctionVersion, InvocationResult
from localstack.services.lambda_.invocation.plugins import RuntimeExecutorPlugin
from localstack.services.lambda_.invocation.runtime_executor import RuntimeExecutor

from duecourse_localstack.runtime_api import Invocation, RuntimeApi, Told

INIT_S = 10.0


class ProcessExecutorPlugin(RuntimeExecutorPlugin):
    """Chosen by LAMBDA_RUNTIME_EXECUTOR=process."""

    name = "process"

    def load(self, *_args: object, **_more: object) -> type[RuntimeExecutor]:
        """The executor's class."""
        return ProcessExecutor


class ProcessExecutor(RuntimeExecutor):
    """One execution environment: a process that is invoked one request at a time, and replaced when it ends."""

    def __init__(self, id: str, function_version: FunctionVersion) -> None:
        super().__init__(id, function_version)
        self._process: subprocess.Popen[bytes] | None = None
        self._api: RuntimeApi | None = None
        self._env: dict[str, str] = {}
        self._log: list[bytes] = []

    def start(self, env_vars: dict[str, str]) -> None:
        """Start the process. Raises StatusErrorException, the function's own error, where it does not ask for work."""
        self._env = {name: str(value) for name, value in env_vars.items()}
        told = self._spawn()
        if not told.ready:
            self.stop()
            raise StatusErrorException("the function cannot start", payload=told.body)

    def _spawn(self) -> Told:
        code = self.function_version.config.code.get_unzipped_code_location()
        self._api = RuntimeApi()
        environment = {
            **self._env,
            "PATH": os.environ["PATH"],
            "AWS_LAMBDA_RUNTIME_API": self._api.address,
            "LAMBDA_TASK_ROOT": str(code),
            "PYTHONPATH": str(code),
        }
        command = [sys.executable, "-m", "awslambdaric", self._env["_HANDLER"]]
        self._process = subprocess.Popen(
            command, cwd=code, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        threading.Thread(target=self._watch, args=(self._process, self._api), daemon=True).start()
        return self._heard(INIT_S)

    def _watch(self, process: "subprocess.Popen[bytes]", api: RuntimeApi) -> None:
        """Keep what the process prints, and tell when it has ended."""
        assert process.stdout
        for line in process.stdout:
            self._log.append(line)
        api.told.put(_failure("Runtime.ExitError", f"Runtime exited with status {process.wait()}"))

    def _heard(self, seconds: float) -> Told:
        assert self._api
        try:
            return self._api.told.get(timeout=seconds)
        except Empty:
            return _failure("Sandbox.Timedout", f"Task timed out after {seconds:.2f} seconds")

    def stop(self) -> None:
        """End the process."""
        if self._process:
            self._process.kill()
            self._process.wait()
        if self._api:
            self._api.close()
        self._process = self._api = None

    def invoke(self, payload: dict[str, str]) -> InvocationResult:
        """Run one invocation; a process that did not live to the end of it is replaced at the next."""
        told = Told(b"", ready=True) if self._process else self._spawn()
        if told.ready:
            told = self._run(payload)
        if self._process and (self._process.poll() is not None or b"Sandbox.Timedout" in told.body):
            self.stop()
        return InvocationResult(
            payload["invoke-id"], told.body, told.is_error, self.get_logs(), self.function_version.id.qualifier
        )

    def _run(self, payload: dict[str, str]) -> Told:
        assert self._api
        timeout = self.function_version.config.timeout
        self._log.clear()
        headers = {
            "Lambda-Runtime-Aws-Request-Id": payload["invoke-id"],
            "Lambda-Runtime-Deadline-Ms": str(int((time.time() + timeout) * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": payload["invoked-function-arn"],
            "Lambda-Runtime-Trace-Id": payload["trace-id"],
        }
        self._api.asked.put(Invocation(payload["payload"].encode(), headers))
        told = self._heard(timeout)
        if self._process and self._process.poll() is None and "Sandbox.Timedout" not in told.body.decode():
            self._heard(1.0)  # the process asking for the next one
        return told

    def get_address(self) -> str:
        """Where the process is."""
        return "127.0.0.1"

    def get_endpoint_from_executor(self) -> str:
        """Where LocalStack is, seen from the process."""
        return "127.0.0.1"

    def get_runtime_endpoint(self) -> str:
        """Of no use: the process speaks to a Runtime API of its own."""
        return "http://127.0.0.1"

    def get_logs(self) -> str:
        """What the process printed since its last invocation began."""
        return b"".join(self._log).decode(errors="replace")

    @classmethod
    def prepare_version(cls, function_version: FunctionVersion) -> None:
        """Unzip the code."""
        if function_version.config.code:
            function_version.config.code.prepare_for_execution()

    @classmethod
    def cleanup_version(cls, function_version: FunctionVersion) -> None:
        """Nothing was made beside the code."""


def _failure(kind: str, message: str) -> Told:
    return Told(json.dumps({"errorType": kind, "errorMessage": message}).encode(), is_error=True)
