"""`rabbitmq`: an empty broker until Ctrl-C."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from ..harness.addresses import MAX_PORT
from ..harness.rabbitmq_server import RabbitMq
from . import console
from .interrupts import staying, until_stopped


def rabbitmq(
    port: Annotated[int, typer.Option(help="Port of RabbitMQ; 0 picks a free one.", min=0, max=MAX_PORT)] = 5673,
) -> None:
    """Start an empty RabbitMQ, and delete it at Ctrl-C.

    Examples:

        duecourse rabbitmq

        duecourse up --amqp amqp://guest:guest@127.0.0.1:5673/
    """
    with (
        until_stopped(),
        tempfile.TemporaryDirectory(prefix="duecourse-rabbitmq-") as folder,
        RabbitMq(Path(folder), port) as broker,
        staying(),
    ):
        console.print_ready("rabbitmq", broker.url)
