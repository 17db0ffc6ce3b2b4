"""Replacement for the native part of `awslambdaric` where it has no wheel: the same four calls, over http.client."""

import http.client
import os
from http.client import HTTPMessage

PREFIX = "/2018-06-01/runtime/invocation/"
DEADLINE = "Lambda-Runtime-Deadline-Ms"


class Client:
    """One kept connection to the Runtime API."""

    def __init__(self, address: str) -> None:
        self.user_agent = ""
        self._connection = http.client.HTTPConnection(address)

    def call(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[bytes, HTTPMessage]:
        """Send one call. Raises RuntimeError for a status of 300 or more."""
        named = {"User-Agent": self.user_agent.encode()} | {
            name: value.encode() for name, value in headers.items() if value
        }
        self._connection.request(method, PREFIX + path, body, named)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status >= 300:
            raise RuntimeError(f"the Runtime API answered {response.status}")
        return answer, response.headers


CLIENT = Client(os.environ["AWS_LAMBDA_RUNTIME_API"])


def initialize_client(user_agent: str) -> None:
    """Say who calls."""
    CLIENT.user_agent = user_agent


def next() -> tuple[bytes, dict[str, str | int]]:
    """Wait for an invocation: its payload and its headers, the deadline a number as the native module gives it."""
    body, headers = CLIENT.call("GET", "next", None, {})
    return body, {**headers, DEADLINE: int(headers[DEADLINE])}


def post_invocation_result(invoke_id: str, result: bytes, content_type: str, invocation_id: str | None = None) -> None:
    """Hand back the handler's answer."""
    headers = {"Content-Type": content_type, "Lambda-Runtime-Invocation-Id": invocation_id or ""}
    CLIENT.call("POST", f"{invoke_id}/response", result, headers)


def post_error(invoke_id: str, error: str, xray_fault: str, invocation_id: str | None = None) -> None:
    """Hand back the handler's failure."""
    headers = {
        "Content-Type": "application/json",
        "Lambda-Runtime-Function-Error-Type": "Unhandled",
        "Lambda-Runtime-Function-XRay-Error-Cause": xray_fault,
        "Lambda-Runtime-Invocation-Id": invocation_id or "",
    }
    CLIENT.call("POST", f"{invoke_id}/error", error.encode(), headers)
