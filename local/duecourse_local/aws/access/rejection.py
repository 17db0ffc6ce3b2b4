"""Rejection of a request whose caller proves nothing."""

from collections.abc import Mapping


class Rejected(Exception):
    """The request carries no proof, or a wrong one: status, message and headers of API Gateway's answer."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
