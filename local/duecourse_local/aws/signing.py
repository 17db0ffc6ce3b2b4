"""The secret by which a stack signs webhooks: its own, kept in the state folder."""

import json
from collections.abc import Iterable
from pathlib import Path

from duecourse.domain.signing import new_secret
from duecourse.domain.task import DEFAULT_TENANT

from ..process.environment import SIGNED_BY
from ..stack.kept import kept
from ..template.model import Function
from . import secrets

FILE = "signing-secret"


def secret_of(state: Path) -> str:
    """The secret of the stack that uses this state folder."""
    return kept(state / FILE, lambda: new_secret().encode()).decode()


def keep(aws: str, state: Path, described: Iterable[Function]) -> bool:
    """Keep it where functions read it, for every tenant; False where none of them does. Raises HarnessError."""
    if all(function.environment.get(SIGNED_BY) != secrets.SIGNING for function in described):
        return False
    secrets.keep(aws, {secrets.SIGNING: json.dumps({DEFAULT_TENANT: [secret_of(state)]})})
    return True
