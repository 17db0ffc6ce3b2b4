"""Link of a client to its App: the verbs until it is closed, and none from then on."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from duecourse.engine.meetings import Meetings
from duecourse.engine.queries import Queries
from duecourse.engine.queues import Queues
from duecourse.engine.schedules import Schedules
from duecourse.engine.tasks import CLIENT, Tasks
from duecourse.engine.waiting import Waiting
from duecourse.errors import ClientClosed
from duecourse.lazy import lazy
from duecourse.ports.bulk import BulkStore
from duecourse.wiring import App

BY = CLIENT
"""Source of tasks added by clients, as `why` shows it."""


class Closed:
    """Verbs of a client that is closed."""

    def __getattr__(self, name: str) -> Any:
        """Raises ClientClosed, whatever is asked for."""
        raise ClientClosed


class Link:
    """The verbs of an App for one client, each group built at its first use: none opens the ledger before."""

    def __init__(self, app: App, give_back: Callable[[App], None]) -> None:
        self.app = app
        self._give_back = give_back
        self._is_open = True

    @property
    def building(self) -> AbstractContextManager[Any]:
        """Lock of the App. A forked child has a new one."""
        return self.app.building

    @lazy
    def tasks(self) -> Tasks:
        """The verbs on tasks."""
        return self.app.tasks.speaking_as(BY)

    @lazy
    def waiting(self) -> Waiting:
        """The verb that waits for a task."""
        return self.app.waiting

    @lazy
    def queues(self) -> Queues:
        """The verbs on queues."""
        return self.app.queues

    @lazy
    def many(self) -> BulkStore:
        """The verb on many tasks."""
        return self.app.store

    @lazy
    def queries(self) -> Queries:
        """The verbs on queries."""
        return self.app.queries.speaking_as(BY)

    @lazy
    def meetings(self) -> Meetings:
        """The verbs on reminders."""
        return self.app.meetings

    @lazy
    def schedules(self) -> Schedules:
        """The verbs on schedules."""
        return self.app.schedules

    def close(self) -> None:
        """Give the App back, once; from now on each verb raises ClientClosed."""
        with self.building:
            is_open = self._is_open
            self._is_open = False
            names = ("tasks", "waiting", "queues", "many", "queries", "meetings", "schedules")
            vars(self).update(dict.fromkeys(names, Closed()))
        if is_open:
            self._give_back(self.app)
