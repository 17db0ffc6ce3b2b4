"""Where the calls of tests may go: to servers on this machine, which a policy of its own lets them reach."""

from collections.abc import Mapping

from duecourse.guard.egress import Egress
from duecourse_local.harness.options import LOOPBACK

HERE = Egress.of(LOOPBACK)
"""The harness's policy."""


def anywhere(_url: str, _headers: Mapping[str, str]) -> str:
    """A Reach with which nothing is wrong, for tests of what is not about addresses."""
    return ""


def anyone(_number: str) -> str:
    """A Dial with which no number is wrong."""
    return ""
