"""A ledger that the commands of operators act on: an HTTP API, or a store that this process opens."""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from duecourse.domain.masking import masked_text
from duecourse.domain.schedule_file import Noted

from ...stack import state
from ...stack.problems import HarnessError

URN = "urn:duecourse:problem:"
"""Beginning of the type of each problem that the API answers."""
Document = dict[str, Any]
"""An answer of the HTTP API."""
Query = Mapping[str, str | None]


class Away(HarnessError):
    """The store or the API does not answer."""


class Rejected(HarnessError):
    """The API rejects the request; `status` is that of HTTP."""

    def __init__(self, status: int, problem: Document) -> None:
        self.status = status
        self.problem = problem
        errors = problem.get("errors") or ()
        fields = "; ".join(f"{one.get('field')}: {one.get('problem')}" for one in errors)
        said = fields or _in_words(problem) or problem.get("detail") or problem.get("title") or f"status {status}"
        super().__init__(str(said))


def _in_words(problem: Document) -> str:
    """Advice of a problem in words of the command line; "" where those of HTTP serve as well."""
    match str(problem.get("type")).removeprefix(URN), problem.get("queue"):
        case "queue-not-found", str(queue):
            made, near = f"duecourse limits {queue} --create makes it", problem.get("near")
            return f"there is no queue {queue}: " + (f"did you mean {near}? ({made})" if near else made)
        case "task-leased", _:
            return "The task is running: try again after it settles, or give --force."
        case "past-deadline", _:
            return "The new due time is not before the deadline of the task: choose an earlier one."
    return ""


class Ledger(Protocol):
    """The HTTP API of a ledger, served by another process or by this one."""

    name: str
    """Name of the place, for people; no password is in it."""

    def ask(self, method: str, path: str, query: Query | None = None, body: Document | None = None) -> Document:
        """Answer to one request, {} for an empty one. Raises Rejected and Away."""

    def noted(self) -> Noted | None:
        """State of the schedule files; None where only the HTTP API is at hand, which does not show it."""

    def kept(self, queue: str, id: str) -> Mapping[str, str]:
        """Fields of a task that the ledger has and the HTTP API does not show."""


class Asked(NamedTuple):
    """The place that the options of a command name."""

    store: str | None
    url: str | None
    token: str | None
    namespace: str | None
    tenant: str | None
    folder: Path

    @property
    def words(self) -> str:
        """The same options for a line to copy, without a token and without a password of the store."""
        shown = {
            "store": self.store and masked_text(self.store),
            "url": self.url,
            "namespace": self.namespace,
            "tenant": self.tenant,
            "stack": None if self.folder == state.DEFAULT else str(self.folder),
        }
        return "".join(f" --{name} {shlex.quote(value)}" for name, value in shown.items() if value)


@contextmanager
def opened(asked: Asked) -> Iterator[Ledger]:
    """The ledger at `--url`, else at `--store`, else of the stack that is up, else of DUECOURSE_STORE.

    Raises Away, and HarnessError where the settings are wrong.
    """
    if asked.url and asked.store:
        raise HarnessError("--url and --store name two places: give one of them")
    up = None if asked.url or asked.store else state.running(asked.folder)
    if asked.url or up:
        from .remote import Remote, of_stack

        yield of_stack(up, asked) if up else Remote(str(asked.url), asked.token, asked.tenant)
        return
    from .inside import inside

    with inside(asked) as ledger:
        yield ledger


def quoted(text: str) -> str:
    """A name as a part of a path."""
    return quote(text, safe="~")
