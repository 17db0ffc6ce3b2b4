"""Check of this Python's build: one without profile-guided optimisation runs the same code at half the speed."""

import sysconfig
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from .finding import Finding, Level

CHECK = "build of Python"
FIX = "run a Python of your distribution, or one that was configured with --enable-optimizations"
DEBIAN = "deb_system"
"""Install scheme that only Debian and Ubuntu add. They train each build by `make profile-opt`, without the option."""


def examine(variables: Mapping[str, Any] | None = None, schemes: Collection[str] | None = None) -> Iterator[Finding]:
    """The finding on a build with these variables and install schemes; by default, on the Python that runs this."""
    if is_optimised(variables, schemes):
        yield Finding(Level.FINE, CHECK, "optimised by profiles")
    else:
        yield Finding(
            Level.NOTE, CHECK, "no optimisation by profiles: a worker or a client does about half as much", FIX
        )


def is_optimised(variables: Mapping[str, Any] | None = None, schemes: Collection[str] | None = None) -> bool:
    """True if such a build was optimised by profiles, and has no debug checks."""
    variables = sysconfig.get_config_vars() if variables is None else variables
    schemes = sysconfig.get_scheme_names() if schemes is None else schemes
    flags = " ".join(str(variables.get(name) or "") for name in ("CONFIG_ARGS", "CFLAGS", "PY_CORE_CFLAGS"))
    is_trained = "--enable-optimizations" in flags or "-fprofile-use" in flags or "-fprofile-instr-use" in flags
    is_known = "CONFIG_ARGS" in variables
    return not variables.get("Py_DEBUG") and (is_trained or DEBIAN in schemes or not is_known)
