"""Credentials of a stack: `credentials` and `token` for its HTTP API, `signing` of webhooks, and the `keyring`."""

import os
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duecourse.api.authorization import Role
from duecourse.base.variables import NAME as TENANT_NAME
from duecourse.base.variables import WRONG_NAME as WRONG_TENANT_NAME
from duecourse.base.variables import read_name
from duecourse.errors import InvalidInput, InvalidSettings
from duecourse.guard.call_credentials import NAME, WRONG_NAME
from duecourse.guard.http_types import CredentialName
from duecourse.guard.signing_secrets import new_secret
from duecourse.ledger.task import DEFAULT_TENANT
from duecourse.settings import parse

from ..errors import HarnessError
from ..harness import state
from ..harness.aws import authorizer
from ..harness.aws.account import REGION
from ..harness.aws.secrets import signing_secret
from . import console, options
from .console import Table

if TYPE_CHECKING:
    from ..harness.aws.task_credentials import Keyring

ROLE = re.compile(r"[\w+=,.@-]{1,64}", re.ASCII)


def _role(name: str) -> str:
    if not ROLE.fullmatch(name):
        raise typer.BadParameter("must be 1 to 64 characters of A-Z a-z 0-9 _ + = , . @ -")
    return name


def credentials(
    role: Annotated[str, typer.Argument(help="Name of a role of the local account.", callback=_role)],
    folder: options.StateUsed = state.DEFAULT,
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
        made = authorizer.signatures(folder).issue(role)
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION")
    for name, value in zip(names, (*made, REGION), strict=True):
        typer.echo(f"{name}={value}")


def _tenant_of_token(name: str) -> str:
    if name and not TENANT_NAME.fullmatch(name):
        raise typer.BadParameter(WRONG_TENANT_NAME)
    return name


TokenTenant = Annotated[
    str, typer.Option(help="Tenant, in the claim org_id; empty for none.", callback=_tenant_of_token)
]
Roles = Annotated[
    list[Role] | None, typer.Option("--role", help="Role; may be repeated.", show_default=str(Role.CALLER))
]
Subject = Annotated[str, typer.Option(help="Subject: the name of the caller in `why`.")]
Lifetime = Annotated[str, typer.Option(help="Lifetime, such as 1h, PT1H or seconds.")]


def token(
    tenant: TokenTenant = "",
    roles: Roles = None,
    subject: Subject = "local",
    lifetime: Lifetime = "PT1H",
    folder: options.StateUsed = state.DEFAULT,
) -> None:
    """Print a token for requests to a stack with --auth jwt.

    Examples:

        duecourse token --tenant acme

        curl -H "authorization: Bearer $(duecourse token --tenant acme)" localhost:3000/tasks

        duecourse token --role operator --subject ops
    """
    lifetime_s = options.seconds(lifetime)
    with console.problems_shown():
        made = authorizer.tokens(folder).issue(subject, tenant, roles or [Role.CALLER], lifetime_s)
    typer.echo(made)


def signing(
    new: Annotated[bool, typer.Option("--new", help="Print a new secret, which nothing here uses.")] = False,
    folder: options.StateUsed = state.DEFAULT,
) -> None:
    """Print the secret by which the local stack signs webhooks, or a new one.

    Receivers verify with it that a webhook comes from the stack.

    Examples:

        WEBHOOK_SECRET=$(duecourse signing) python my_receiver.py

        aws secretsmanager create-secret --name duecourse/signing \\
            --secret-string "{\\"-\\": [\\"$(duecourse signing --new)\\"]}"
    """
    with console.problems_shown():
        typer.echo(new_secret() if new else signing_secret(folder))


PREFIX = "DUECOURSE_CREDENTIAL_PREFIX"


class CredentialType(StrEnum):
    """Type of a credential."""

    BEARER = "bearer"
    BASIC = "basic"
    HEADER = "header"
    OAUTH = "oauth"


SECRET = {
    CredentialType.BEARER: "token",
    CredentialType.BASIC: "password",
    CredentialType.HEADER: "value",
    CredentialType.OAUTH: "client_secret",
}
"""Field of each type that is never an argument."""


def _secret_name(name: str) -> str:
    if name and not re.fullmatch(NAME, name):
        raise typer.BadParameter(WRONG_NAME)
    return name


def _tenant_of_secret(name: str) -> str:
    try:
        return read_name(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _checked_fields(given: list[str]) -> list[str]:
    for field in given:
        if not re.fullmatch(r"\w+=.*", field, re.DOTALL) or field.partition("=")[0] in SECRET.values():
            raise typer.BadParameter("must be FIELD=VALUE, and not the secret itself: that is read from standard input")
    return given


SecretName = Annotated[
    str,
    typer.Argument(
        help="Name of the credential; without a name, all are listed.", show_default=False, callback=_secret_name
    ),
]
SecretTenant = Annotated[str, typer.Option(help="Tenant of the credential; - for none.", callback=_tenant_of_secret)]
SecretKind = Annotated[CredentialType | None, typer.Option("--type", help="Type of the credential.")]
SecretHosts = Annotated[
    list[str],
    typer.Option("--host", help="Host that may get it, such as api.example.com or .example.com; may be repeated."),
]
SecretFields = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Field such as user, name, client_id; may be repeated.",
        callback=_checked_fields,
    ),
]
Remove = Annotated[bool, typer.Option("--remove", help="Delete the credential.")]
Remote = Annotated[
    bool, typer.Option("--remote", help="Use the AWS account of your environment, and not the running stack.")
]


def keyring(
    name: SecretName = "",
    tenant: SecretTenant = DEFAULT_TENANT,
    kind: SecretKind = None,
    hosts: SecretHosts = [],  # noqa: B006 - never changed
    fields: SecretFields = [],  # noqa: B006
    remove: Remove = False,
    remote: Remote = False,
    folder: options.StateUsed = state.DEFAULT,
) -> None:
    """Keep a credential for the calls of tasks, which name it in `auth`; or list all credentials.

    The secret part comes from the standard input, because other users of a machine can see arguments.

    Examples:

        duecourse keyring billing --type bearer --host api.example.com < token.txt

        duecourse keyring crm --type basic --set user=ada --host crm.example.com --tenant acme

        duecourse keyring erp --type header --set name=X-Api-Key --host .example.com --remote

        duecourse keyring erp --remove --remote

        duecourse keyring
    """
    with console.problems_shown():
        ring, key = _opened_keyring(folder, remote), CredentialName(tenant, name)
        if not name:
            _list_credentials(ring)
        elif remove:
            ring.remove(key)
        elif kind is None:
            raise HarnessError("give --type, or --remove")
        else:
            _put_credential(ring, key, kind, {"hosts": hosts, **dict(one.split("=", 1) for one in fields)})


def _opened_keyring(folder: Path, remote: bool) -> "Keyring":
    from ..harness.aws.task_credentials import Keyring  # boto3 comes along

    try:
        found = parse({PREFIX: os.environ.get(PREFIX, "")}).credential_prefix
    except InvalidSettings as error:
        raise HarnessError(str(error)) from error
    if remote:
        return Keyring(None, found)
    up = state.running(folder)
    if not up:
        raise HarnessError("no stack is up: run duecourse up, or give --remote for an AWS account")
    return Keyring(str(up["aws"]), found)


def _put_credential(ring: "Keyring", key: CredentialName, kind: CredentialType, fields: dict[str, object]) -> None:
    secret = SECRET[kind]
    is_terminal = sys.stdin.isatty()
    value = typer.prompt(secret, hide_input=True, err=True) if is_terminal else sys.stdin.read().rstrip("\r\n")
    try:
        console.out.print(f"kept in {console.shown(ring.put(key, {'type': str(kind), **fields, secret: value}))}")
    except InvalidInput as error:
        raise HarnessError(str(error)) from None


def _list_credentials(ring: "Keyring") -> None:
    table = Table("tenant", "auth", "type", "hosts")
    for one in ring.every():
        table.add_row(
            one.tenant,
            one.name,
            one.type,
            ", ".join(one.hosts),
        )
    console.print_table(table)
