"""A stack that demands a proof of identity, and requests with the proof of each caller."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import urllib3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from duecourse.api.authorization import Role
from duecourse_local.harness.aws import authorizer
from duecourse_local.harness.aws.account import ACCOUNT, REGION
from duecourse_local.harness.aws.authorizer import Auth
from duecourse_local.harness.options import Options, Precision
from tests.support.callers import Caller
from tests.support.emulator import local_stack
from tests.support.http_server import Reply, answering
from tests.support.requests import Answer

ACME = Caller("acme", (Role.CALLER, Role.WORKER))
KNOWN = [ACME, *(Caller(tenant, (role,)) for tenant in ("acme", "globex") for role in Role)]
"""Everybody with a role, each of whom has a role of the account."""
TABLE = {f"arn:aws:iam::{ACCOUNT}:role/{who.name}": {"tenant": who.tenant, "roles": who.roles} for who in KNOWN}
tokens = cache(authorizer.tokens)
"""What issues the tokens of a folder: its key is checked once, for that takes a tenth of a second."""
RULES = {Auth.JWT: "claim:org_id", Auth.IAM: f"principals:{json.dumps(TABLE)}"}


class AuthenticatedStack(NamedTuple):
    """A stack that asks for a proof, and the keys of its folder."""

    auth: Auth
    api: str
    folder: Path
    report: str

    def call_as(self, who: Caller, method: str, path: str, body: Any = None, query: str = "", **headers: str) -> Answer:
        """One request with the proof of who asks."""
        target = f"{path}?{query}" if query else path
        text = None if body is None else json.dumps(body)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        given |= {"content-type": "application/json"} if text else {}
        return self.send(method, target, text, self.proof(who)(method, target, text, given))

    def proof(self, who: Caller) -> Callable[[str, str, str | None, dict[str, str]], dict[str, str]]:
        """What adds the proof to the headers of a request."""
        if self.auth == Auth.JWT:
            token = tokens(self.folder).issue(who.name, who.tenant, who.roles, 60)
            return lambda _method, _target, _text, headers: headers | {"authorization": f"Bearer {token}"}
        return lambda *request: self.signed(authorizer.signatures(self.folder).issue(who.name), *request)

    def signed(
        self, by: tuple[str, str, str], method: str, target: str, text: str | None, headers: dict[str, str]
    ) -> dict[str, str]:
        """Headers of a request that botocore signs."""
        request = AWSRequest(method, self.api + target, data=text, headers=headers)
        SigV4Auth(Credentials(*by), "execute-api", REGION).add_auth(request)
        return dict(request.headers.items())

    def send(self, method: str, target: str, text: str | None, headers: dict[str, str]) -> Answer:
        """One request as it is given."""
        answer = urllib3.request(method, self.api + target, body=text, headers=headers, retries=False, timeout=30)
        shown = answer.data.decode()
        return Answer(answer.status, json.loads(shown) if shown[:1] == "{" else None, dict(answer.headers), shown)


@contextmanager
def authenticated_stack(auth: Auth, folder: Path) -> Iterator[AuthenticatedStack]:
    """The functions on a ledger in memory, in which nothing runs by itself."""
    options = Options(
        auth=auth,
        store="memory://",
        tick=0,
        precision=Precision.TICK,
        parameters={},
        state=folder,
        environment={"DUECOURSE_TENANT_FROM": RULES[auth]},
    )
    with answering(lambda _asked: Reply(200, b'{"status": "ok"}')) as report, local_stack(options) as stack:
        yield AuthenticatedStack(auth, stack.api, folder, report.url)
