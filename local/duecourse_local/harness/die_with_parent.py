"""Tie this process to its parent's life, then become the given program.

Usage: `die_with_parent.py PARENT_PID PROGRAM [ARGUMENT…]`.
"""

import os
import sys

PR_SET_PDEATHSIG = 1
SIGKILL = 9


def tie(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends (Linux; elsewhere nothing)."""
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != parent:  # it ended before we asked
        os._exit(1)


if __name__ == "__main__":
    tie(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - becoming the program is its purpose
