"""Secrets of credentials, as they are set and stored.

To add a type of credential, add its model to TYPES, and what a call carries of it to `guard/call_credentials.py`.
SECRET of `local/duecourse_local/cli/credentials.py` names the field that is no argument. Add a row to
`docs/how-to/credentials.md`.
"""

from base64 import b64encode
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    Field,
    StrictStr,
    model_validator,
)

from duecourse.api.fields import (
    Checked,
    Strict,
    matching,
    read,
    reject_fields,
)
from duecourse.api.kind_payloads import Url
from duecourse.base.hints import near_name
from duecourse.base.variables import json_such_as
from duecourse.errors import FieldError, InvalidInput
from duecourse.guard.call_credentials import (
    MIN_SECRET_LENGTH,
    Credential,
    HeaderCredential,
    OAuth,
    SecretHeader,
    bearer_header,
)
from duecourse.guard.egress import Egress, HostRule
from duecourse.guard.http_types import is_reserved

# The value of a secret: JSON with a type, what that type has, and the hosts that may get it.

EXAMPLE = '{"type": "bearer", "token": "…", "hosts": ["api.example.com"]}'
OWN = frozenset({"content-type", "content-encoding", "accept-encoding", "user-agent"})
"""Headers that no credential may be: they tell the receiver how to read the request."""


def _header_name(value: str) -> str:
    if is_reserved(value) or value.lower() in OWN:
        raise ValueError("must not be a header that duecourse or the connection sets")
    return value


def _host(value: str) -> str:
    if "," in value or not value.strip():
        raise ValueError("must be a host, a .suffix, an address or a network, with an optional :port")
    Egress.of(value)
    return value


def _ascii(least: int, letters: str = " -~") -> Checked:
    return matching(rf"[{letters}]{{{least},8192}}", f"must be {least} to 8192 printable ASCII characters")


Secret = Annotated[StrictStr, _ascii(MIN_SECRET_LENGTH)]
Token = Annotated[StrictStr, _ascii(MIN_SECRET_LENGTH, "!-~")]
Text = Annotated[StrictStr, _ascii(1)]
Login = Annotated[StrictStr, matching(r"[^\x00-\x1f\x7f]{0,1024}", "must be at most 1024 printable characters")]
HeaderName = Annotated[
    StrictStr,
    matching(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}", "must be the name of a header"),
    Checked(_header_name, {}),
]
Hosts = Annotated[list[Annotated[StrictStr, Checked(_host, {})]], Field(min_length=1, max_length=50)]


class _Bound(Strict):
    hosts: Hosts

    def entries(self) -> tuple[HostRule, ...]:
        """The hosts, as the policy of calls reads its own."""
        return Egress.of(",".join(self.hosts)).entries


class BearerSecret(_Bound):
    """A token: `Authorization: Bearer …`."""

    type: Literal["bearer"]
    token: Token

    def credential(self) -> Credential:
        """The same for calls."""
        return HeaderCredential(self.entries(), bearer_header(self.token))


class BasicSecret(_Bound):
    """A login: `Authorization: Basic …`; some services take a key as its user, and any password."""

    type: Literal["basic"]
    user: Login
    password: Login

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if ":" in self.user:
            raise reject_fields("must not contain a colon", "user")
        if max(len(self.user), len(self.password)) < MIN_SECRET_LENGTH:
            raise reject_fields(f"must have at least {MIN_SECRET_LENGTH} characters, or the user must", "password")
        return self

    def credential(self) -> Credential:
        """The same for calls."""
        pair = b64encode(f"{self.user}:{self.password}".encode()).decode()
        own = self.password if len(self.password) >= MIN_SECRET_LENGTH else self.user
        return HeaderCredential(self.entries(), SecretHeader("authorization", f"Basic {pair}", (own, pair)))


class HeaderSecret(_Bound):
    """A header of any name, such as `X-Api-Key`."""

    type: Literal["header"]
    name: HeaderName
    value: Secret

    def credential(self) -> Credential:
        """The same for calls; of a value with a scheme before it, the rest alone is hidden too."""
        _, _, rest = self.value.partition(" ")
        secrets = (self.value, rest) if len(rest) >= MIN_SECRET_LENGTH else (self.value,)
        return HeaderCredential(self.entries(), SecretHeader(self.name.lower(), self.value, secrets))


class OAuthSecret(_Bound):
    """OAuth's client credentials: `token_url` gives tokens for them."""

    type: Literal["oauth"]
    token_url: Url
    client_id: Text
    client_secret: Secret
    client_auth: Literal["basic", "body"] = "basic"
    scope: Text | None = None
    audience: Text | None = None

    def credential(self) -> Credential:
        """The same for calls."""
        return OAuth(
            self.entries(),
            self.token_url,
            self.client_id,
            self.client_secret,
            self.scope or "",
            self.audience or "",
            self.client_auth == "body",
        )


CredentialSecret: TypeAlias = BearerSecret | BasicSecret | HeaderSecret | OAuthSecret
TYPES: dict[str, type[CredentialSecret]] = {
    "bearer": BearerSecret,
    "basic": BasicSecret,
    "header": HeaderSecret,
    "oauth": OAuthSecret,
}


def read_secret(value: Any) -> CredentialSecret:
    """A secret's fields. Raises InvalidInput, naming every wrong field and showing no value."""
    if not isinstance(value, dict):
        raise InvalidInput([FieldError("value", f"must be JSON such as {EXAMPLE}")])
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in TYPES:
        raise InvalidInput([FieldError("type", f"must be one of: {', '.join(TYPES)}{near_name(kind, TYPES)}")])
    return read(TYPES[kind], value)


def read_credential(text: str) -> Credential:
    """The credential in a secret's text. Raises InvalidInput, naming every wrong field and showing no value."""
    try:
        return json_such_as(EXAMPLE, read_secret)(text).credential()
    except ValueError as error:
        raise InvalidInput([FieldError("value", str(error))]) from None
