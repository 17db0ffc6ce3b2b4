"""Checks of the functions that targets name: each exists, and its timeout fits the lease."""

from collections.abc import Callable, Iterator, Mapping

from duecourse.base.times import span

from .finding import Finding, Level

FUNCTION = "lambda:"
Timeout = Callable[[str], float | None]
"""Timeout of a function in seconds; None for one that does not exist."""


def examine(targets: Mapping[str, str], lease_ms: int, timeout_of: Timeout) -> Iterator[Finding]:
    """Findings on the targets of kinds."""
    for kind, target in targets.items():
        if not target.startswith(FUNCTION):
            continue
        name = target.removeprefix(FUNCTION)
        timeout = timeout_of(name)
        if timeout is None:
            text = f"kind {kind} goes to {target}, and there is no such function"
            yield Finding(Level.FAULT, "targets", text, "deploy it, or correct DUECOURSE_TARGETS")
        elif timeout * 1_000 >= lease_ms:
            text = f"{name} may run for {timeout:g} s, and a lease lasts {span(lease_ms)}"
            yield Finding(Level.WARNING, "targets", text, "make DUECOURSE_LEASE longer than the timeout")
        else:
            yield Finding(Level.FINE, "targets", f"kind {kind}: {name}, timeout {timeout:g} s")
