"""The Apps of this process: its environment's, and those of clients; and the handlers that Lambda calls with the first.

Apps with the same settings are one App, whose connections and threads all that have it share.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, update_wrapper
from threading import RLock
from typing import Any, Generic, TypeVar

from duecourse.domain.task import Json
from duecourse.settings import Settings, parse
from duecourse.wiring import App

R = TypeVar("R")


class Process:
    """A process: it has one environment, and so one App for its handlers; each client may have another."""

    def __init__(self) -> None:
        self._app: App | None = None
        self._users: Counter[App] = Counter()
        """Apps that are open, each with the number of its users."""
        self._reading = RLock()

    def renew_locks(self) -> None:
        """Have locks that nobody holds: in a forked child, the threads that held its parent's are not there."""
        self._reading = RLock()
        for app in {*self._users, *([self._app] if self._app else [])}:
            app.building = RLock()

    def app(self) -> App:
        """The App of the environment, read at the first call. Raises InvalidSettings."""
        with self._reading:  # functions may be threads: of two first events, one builds the App
            if self._app is None:
                self._app = self.opened(parse(os.environ))
            return self._app

    def opened(self, settings: Settings) -> App:
        """The App with these settings, for one user more."""
        with self._reading:
            app = next((one for one in self._users if one.settings == settings), None) or App(settings)
            self._users[app] += 1
            return app

    def closed(self, app: App) -> None:
        """Take a user's App back; it is closed after its last user."""
        with self._reading:
            self._users[app] -= 1
            if not self._users[app]:
                del self._users[app]
                app.close()  # before anyone else may open it: a folder has one opener at a time

    @contextmanager
    def using(self, app: App) -> Iterator[App]:
        """Have this App for the while: of a harness that gives its threads another environment, or of a test."""
        before, self._app = self._app, app
        try:
            yield app
        finally:
            self._app = before


PROCESS = Process()
os.register_at_fork(after_in_child=PROCESS.renew_locks)


class Handler(Generic[R]):
    """A Lambda handler from a function of an App, an event and its context; the App is by default the process's."""

    def __init__(self, serve: Callable[[App, Any, Any], R]) -> None:
        self._serve = serve
        update_wrapper(self, serve)

    def __call__(self, event: Json, context: Any) -> R:
        """Serve one event. An import reads no environment: the first event does."""
        return self._serve(PROCESS.app(), event, context)

    def on(self, app: App) -> Callable[[Json, Any], R]:
        """The same handler on this App."""
        return partial(self._serve, app)
