"""`keyring`: keep the credentials that tasks name in `auth`, and list them."""

import os
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from duecourse.domain.credential import NAME, WRONG_NAME, CredentialName
from duecourse.domain.task import DEFAULT_TENANT
from duecourse.errors import InvalidInput, InvalidSettings
from duecourse.settings import parse
from duecourse.wire.settings.variables import read_name

from ...stack import state
from ...stack.problems import HarnessError
from .. import client, console
from ..table import Table

if TYPE_CHECKING:
    from ...aws.keyring import Keyring

PREFIX = "DUECOURSE_CREDENTIAL_PREFIX"


class Type(StrEnum):
    """Type of a credential."""

    BEARER = "bearer"
    BASIC = "basic"
    HEADER = "header"
    OAUTH = "oauth"


SECRET = {Type.BEARER: "token", Type.BASIC: "password", Type.HEADER: "value", Type.OAUTH: "client_secret"}
"""Field of each type that is never an argument."""


def _name(name: str) -> str:
    if name and not re.fullmatch(NAME, name):
        raise typer.BadParameter(WRONG_NAME)
    return name


def _tenant(name: str) -> str:
    try:
        return read_name(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _fields(given: list[str]) -> list[str]:
    for field in given:
        if not re.fullmatch(r"\w+=.*", field, re.DOTALL) or field.partition("=")[0] in SECRET.values():
            raise typer.BadParameter("must be FIELD=VALUE, and not the secret itself: that is read from standard input")
    return given


Name = Annotated[
    str,
    typer.Argument(help="Name of the credential; without a name, all are listed.", show_default=False, callback=_name),
]
Tenant = Annotated[str, typer.Option(help="Tenant of the credential; - for none.", callback=_tenant)]
Kind = Annotated[Type | None, typer.Option("--type", help="Type of the credential.")]
Hosts = Annotated[
    list[str],
    typer.Option("--host", help="Host that may get it, such as api.example.com or .example.com; may be repeated."),
]
Fields = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="FIELD=VALUE", help="Field such as user, name, client_id; may be repeated.", callback=_fields
    ),
]
Remove = Annotated[bool, typer.Option("--remove", help="Delete the credential.")]
Remote = Annotated[
    bool, typer.Option("--remote", help="Use the AWS account of your environment, and not the running stack.")
]


def keyring(
    name: Name = "",
    tenant: Tenant = DEFAULT_TENANT,
    kind: Kind = None,
    hosts: Hosts = [],  # noqa: B006 - never changed
    fields: Fields = [],  # noqa: B006
    remove: Remove = False,
    remote: Remote = False,
    folder: client.StateUsed = state.DEFAULT,
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
        ring, key = _open(folder, remote), CredentialName(tenant, name)
        if not name:
            _list(ring)
        elif remove:
            ring.remove(key)
        elif kind is None:
            raise HarnessError("give --type, or --remove")
        else:
            _put(ring, key, kind, {"hosts": hosts, **dict(one.split("=", 1) for one in fields)})


def _open(folder: Path, remote: bool) -> "Keyring":
    from ...aws.keyring import Keyring  # boto3 comes along

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


def _put(ring: "Keyring", key: CredentialName, kind: Type, fields: dict[str, object]) -> None:
    secret = SECRET[kind]
    asked = sys.stdin.isatty()
    value = typer.prompt(secret, hide_input=True, err=True) if asked else sys.stdin.read().rstrip("\r\n")
    try:
        console.out.print(f"kept in {console.shown(ring.put(key, {'type': str(kind), **fields, secret: value}))}")
    except InvalidInput as error:
        raise HarnessError(str(error)) from None


def _list(ring: "Keyring") -> None:
    table = Table("tenant", "auth", "type", "hosts")
    for one in ring.every():
        table.add_row(
            one.tenant,
            one.name,
            one.type,
            ", ".join(one.hosts),
        )
    console.show(table)
