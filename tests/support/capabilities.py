"""What each emulator of AWS can do of what this project needs: each cell is a claim, which a test makes it prove.

(A schedule that is said not to fire is not waited for, nor a record of a failure that is said not to come.)
"""

from typing import NamedTuple

import urllib3


class Emulator(NamedTuple):
    """One row; `mails` is where it tells what mail it took, "" for nowhere."""

    name: str
    deploys: bool
    """CloudFormation makes the functions of a SAM template."""
    runs: bool
    """Lambda's Invoke API runs their code."""
    layers: bool
    """Layers are applied to functions; where not, they are folded into each function's archive."""
    http_api: bool
    """HTTP APIs can be made; where not, the harness's gateway calls the deployed functions."""
    schedules: bool
    """A rule with rate(1 minute) invokes its function."""
    ses_v2: bool
    """SES has its second version, which CloudFormation's EmailIdentity stands on."""
    errors: bool
    """A function's error carries its class as errorType."""
    destinations: bool
    """The record of an asynchronous invocation that failed comes to the failure destination, and to who reads there."""
    here: bool
    """Its functions reach servers on this machine's loopback, which the demo's stories play on."""
    mails: str


TABLE = {
    row.name: row
    for row in (
        Emulator("localstack", True, True, False, False, True, False, True, True, True, "/_aws/ses"),
        Emulator("moto", False, False, False, True, False, True, False, False, False, "/moto-api/data.json"),
        Emulator("ministack", True, True, True, True, True, True, False, False, True, "/_ministack/ses/messages"),
        Emulator("aws", True, True, True, True, True, True, True, True, False, ""),
    )
}
"""`localstack` is the community edition 4.9.2 with an executor of ours; it proves nothing about its own containers."""

SIGNS = {
    "ministack": "/_ministack/ses/messages",
    "localstack": "/_localstack/health",
    "moto": "/moto-api/data.json",
}
"""An address that an emulator answers, and none of those after it."""


def emulator_at(endpoint: str | None) -> Emulator:
    """Which emulator answers at the endpoint; none at all is AWS itself."""
    if not endpoint:
        return TABLE["aws"]
    with urllib3.PoolManager(retries=False, timeout=30) as http:
        for name, path in SIGNS.items():
            if http.request("GET", endpoint + path).status == 200:
                return TABLE[name]
    raise AssertionError(f"{endpoint} answers like none of {', '.join(SIGNS)}")
