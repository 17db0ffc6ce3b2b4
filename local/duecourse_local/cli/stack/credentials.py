"""`credentials`: issue temporary AWS credentials for the HTTP API of a stack with --auth iam."""

import re
from typing import Annotated

import typer

from ...aws.access import chosen
from ...aws.account import REGION
from ...stack import state
from .. import client, console

ROLE = re.compile(r"[\w+=,.@-]{1,64}", re.ASCII)


def _role(name: str) -> str:
    if not ROLE.fullmatch(name):
        raise typer.BadParameter("must be 1 to 64 characters of A-Z a-z 0-9 _ + = , . @ -")
    return name


def credentials(
    role: Annotated[str, typer.Argument(help="Name of a role of the local account.", callback=_role)],
    folder: client.StateUsed = state.DEFAULT,
) -> None:
    """Print credentials of a session of a role, for requests to a stack with --auth iam.

    Four roles are known unless DUECOURSE_TENANT_FROM is set: acme and globex (callers of these tenants), worker (of any
    tenant) and operator.

    Examples:

        export $(duecourse credentials acme)
        curl localhost:3000/tasks --aws-sigv4 aws:amz:us-east-1:execute-api \\
            --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" -H "x-amz-security-token: $AWS_SESSION_TOKEN"
    """
    with console.problems_shown():
        made = chosen.signatures(folder).issue(role)
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION")
    for name, value in zip(names, (*made, REGION), strict=True):
        typer.echo(f"{name}={value}")
