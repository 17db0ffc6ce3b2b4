"""`token`: issue a JSON Web Token for the HTTP API of a stack with --auth jwt."""

from typing import Annotated

import typer

from duecourse.domain.access import Role
from duecourse.wire.settings.variables import NAME, WRONG_NAME

from ...aws.access import chosen
from ...stack import state
from .. import client, console


def _tenant(name: str) -> str:
    if name and not NAME.fullmatch(name):
        raise typer.BadParameter(WRONG_NAME)
    return name


Tenant = Annotated[str, typer.Option(help="Tenant, in the claim org_id; empty for none.", callback=_tenant)]
Roles = Annotated[
    list[Role] | None, typer.Option("--role", help="Role; may be repeated.", show_default=str(Role.CALLER))
]
Subject = Annotated[str, typer.Option(help="Subject: the name of the caller in `why`.")]
Lifetime = Annotated[str, typer.Option(help="Lifetime, such as 1h, PT1H or seconds.")]


def token(
    tenant: Tenant = "",
    roles: Roles = None,
    subject: Subject = "local",
    lifetime: Lifetime = "PT1H",
    folder: client.StateUsed = state.DEFAULT,
) -> None:
    """Print a token for requests to a stack with --auth jwt.

    Examples:

        duecourse token --tenant acme

        curl -H "authorization: Bearer $(duecourse token --tenant acme)" localhost:3000/tasks

        duecourse token --role operator --subject ops
    """
    lifetime_s = client.seconds(lifetime)
    with console.problems_shown():
        made = chosen.tokens(folder).issue(subject, tenant, roles or [Role.CALLER], lifetime_s)
    typer.echo(made)
