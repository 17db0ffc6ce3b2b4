"""Pages of a queue's tasks: the filter, the order, and a place in it."""

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from typing import NamedTuple

from duecourse.domain.task import Status, Task

MAX_PAGE = 100
"""The most tasks of one page."""
PAGE_BYTES = 1_200_000
"""Size of a page's texts at which the page ends. Lambda counts up to 3.5 bytes for each of them in its 6 MiB."""
BESIDE_BYTES = 8_000
"""Size of a record's other fields."""
SECTIONS: dict[str, tuple[Status, ...]] = {
    "due": (Status.SCHEDULED,),
    "leased": (Status.LEASED,),
    "done": (Status.DONE, Status.CANCELLED),
    "dead": (Status.DEAD,),
}
"""The order of tasks: section after section, in each by time (when due, the end of the lease, when it ended), then by
id."""


def size_of(*texts: str) -> int:
    """Size of a record with these texts, in a page."""
    return BESIDE_BYTES + sum(len(text.encode(errors="surrogatepass")) for text in texts)


def fitting(sizes: Iterable[int], room: int) -> tuple[int, int]:
    """Number of records, at least one, that fill a page, and the room that is left."""
    count = 0
    for size in sizes:
        count, room = count + 1, room - size
        if room <= 0:
            break
    return count, room


class Wanted(NamedTuple):
    """Filter: tasks of one state, kind, group and error, since an instant (epoch ms); None, "" and 0 for all.

    `error` is a part of the error, in which `#` matches any text. `since_at` counts from the add for a scheduled or
    leased task, from its end for others.
    """

    status: Status | None = None
    kind: str = ""
    group: str = ""
    error: str = ""
    since_at: int = 0

    def sections(self) -> list[str]:
        """Sections of the tasks that pass the filter, in order."""
        return [name for name, states in SECTIONS.items() if self.status is None or self.status in states]


class Place(NamedTuple):
    """Start of a page: after the task `id` of that instant; "" is before all of them."""

    section: str
    at: int = 0
    id: str = ""

    @property
    def cursor(self) -> str:
        """The place as text for a request: opaque, and fit for a URL."""
        return urlsafe_b64encode(":".join(map(str, self)).encode()).decode().rstrip("=")


class Page(NamedTuple):
    """Tasks in their order, and where the next page begins; None after the last."""

    tasks: list[Task]
    next: Place | None
