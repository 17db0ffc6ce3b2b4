"""`signing`: the secret by which a stack signs webhooks, or a new one for a deployed stack."""

from typing import Annotated

import typer

from duecourse.domain.signing import new_secret

from ...aws.signing import secret_of
from ...stack import state
from .. import client, console


def signing(
    new: Annotated[bool, typer.Option("--new", help="Print a new secret, which nothing here uses.")] = False,
    folder: client.StateUsed = state.DEFAULT,
) -> None:
    """Print the secret by which the local stack signs webhooks, or a new one.

    Receivers verify with it that a webhook comes from the stack.

    Examples:

        WEBHOOK_SECRET=$(duecourse signing) python my_receiver.py

        aws secretsmanager create-secret --name duecourse/signing \\
            --secret-string "{\\"-\\": [\\"$(duecourse signing --new)\\"]}"
    """
    with console.problems_shown():
        typer.echo(new_secret() if new else secret_of(folder))
