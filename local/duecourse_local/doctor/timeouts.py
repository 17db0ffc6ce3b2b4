"""Timeouts of functions: of the stack that is up here, else of the account that the environment's credentials name."""

from pathlib import Path
from typing import Any

from ..cli import client
from ..stack import state
from .targets import Timeout


def timeouts(folder: Path) -> Timeout:
    """The timeout of each function by its name."""
    return _of_template if state.running(folder) else _of_account()


def _of_template(name: str) -> float | None:
    function = client.functions().get(name)
    return function.timeout if function else None


def _of_account() -> Timeout:
    import boto3

    service: Any = boto3.client("lambda")

    def timeout_of(name: str) -> float | None:
        try:
            return float(service.get_function_configuration(FunctionName=name)["Timeout"])
        except service.exceptions.ResourceNotFoundException:
            return None

    return timeout_of
