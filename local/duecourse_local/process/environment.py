"""Environment of a function's process: its environment variables and its search path."""

import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..aws.account import ACCOUNT, CREDENTIALS
from ..template.model import Function
from .runtimes import is_python

STAND_IN = Path(__file__).with_name("standin")
PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "TMPDIR")
"""All that a child sees of the host's environment, besides the settings of the product itself."""
SETTINGS = "DUECOURSE_"
TARGETS = "DUECOURSE_TARGETS"
EGRESS_ALLOW = "DUECOURSE_EGRESS_ALLOW"
STORE, STORE_SECRET = "DUECOURSE_STORE", "DUECOURSE_STORE_SECRET"
SEAL_KEY = "DUECOURSE_SEAL_KEY"
AMQP, AMQP_SECRET = "DUECOURSE_AMQP", "DUECOURSE_AMQP_SECRET"
SIGNED_BY = "DUECOURSE_SIGNING_SECRET"
TENANT_FROM = "DUECOURSE_TENANT_FROM"
TENANTS = {"DUECOURSE_TENANT_HEADER": "X-Tenant"}
"""Tenants by header where no caller has to prove its own, for a laptop only.

The template does not set this, so a deployed function ignores the header.
"""


def host_settings() -> dict[str, str]:
    """The product's own settings in the host's environment: they win over the template's.

    Secrets and a key named there are a deployed stack's: this one has a store, an emulator and a key of its own.
    """
    own = {STORE_SECRET, AMQP_SECRET, SEAL_KEY, SIGNED_BY}
    return {name: value for name, value in os.environ.items() if name.startswith(SETTINGS) and name not in own}


@dataclass(frozen=True)
class Environment:
    """Environment that all functions share: addresses of services, and variables that win over the template's."""

    aws: str
    lambda_url: str
    store: str
    overrides: Mapping[str, str] = field(default_factory=dict)
    pure_python: bool = False
    """Use the substitute for the runtime client's native part even where that part is installed."""

    def base(self) -> dict[str, str]:
        """Variables of every child of the harness, the bridge too."""
        return {
            **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
            **CREDENTIALS,
            "LANG": "C.UTF-8",
            "AWS_ENDPOINT_URL": self.aws,
            "AWS_ENDPOINT_URL_LAMBDA": self.lambda_url,
        }

    def settings(self, function: Function) -> dict[str, str]:
        """The template's variables for `function`, as overridden here; targets given here join the template's."""
        given = {**function.environment, **self.overrides, STORE: self.store}
        if not function.environment.get(SEAL_KEY):  # as deployed: a function without a key gets its tasks opened
            given.pop(SEAL_KEY, None)
        given = TENANTS | given if function.routes and not given.get(TENANT_FROM) else given
        for secret, plain in ((STORE_SECRET, STORE), (AMQP_SECRET, AMQP)):
            if given.get(secret):
                given[plain] = ""  # it is read from the emulator, and is in no process's environment
        own, added = function.environment.get(TARGETS), self.overrides.get(TARGETS)
        return given if own is None or added is None else given | {TARGETS: _joined(own, added)}

    def of(self, function: Function, runtime_api: str) -> dict[str, str]:
        """The environment of one process of `function`, with the variables that Lambda sets."""
        return {
            **self.base(),
            "TZ": ":UTC",
            **({"PYTHONPATH": os.pathsep.join(map(str, self._path(function)))} if is_python(function) else {}),
            "_HANDLER": function.handler,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.runtime}",
            "AWS_LAMBDA_FUNCTION_NAME": function.name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": function.log_group,
            "AWS_LAMBDA_LOG_STREAM_NAME": f"local/[$LATEST]{runtime_api}",
            "AWS_LAMBDA_RUNTIME_API": runtime_api,
            "AWS_ACCOUNT_ID": ACCOUNT,
            "LAMBDA_TASK_ROOT": str(function.code),
            "LAMBDA_RUNTIME_DIR": str(Path(sys.executable).parent),
            **self.settings(function),
        }

    def of_bridge(self, function: Function) -> dict[str, str]:
        """The environment of the bridge, whose rings invoke `function`: the same settings and code."""
        return {
            **self.base(),
            **self.settings(function),
            "DUECOURSE_ON_EXPIRED_FUNCTION": function.name,
            "PYTHONPATH": os.pathsep.join(map(str, function.layers)),
        }

    def _path(self, function: Function) -> list[Path]:
        missing = importlib.util.find_spec("runtime_client") is None
        stand_in = [STAND_IN] if self.pure_python or missing else []
        packages = [function.packages] if function.packages else []
        return [*stand_in, function.code, *packages, *function.layers]


def _joined(own: str, added: str) -> str:
    """Targets of the template and those given beside it; none for a function that hands nothing on.

    Without the template's, reminders would be worked inline, by functions that have nothing to send them with.
    """
    return json.dumps(json.loads(own) | json.loads(added)) if own and added else own
