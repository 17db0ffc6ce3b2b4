"""The App of this process, and the handlers that Lambda calls with it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, update_wrapper
from threading import Lock
from typing import Any, Generic, TypeVar

from duecourse.domain.task import Json
from duecourse.settings import parse
from duecourse.wiring import App

R = TypeVar("R")


class Process:
    """A process, which has one environment and so one App: handlers and clients share its connections and threads."""

    def __init__(self) -> None:
        self._app: App | None = None
        self._reading = Lock()

    def app(self) -> App:
        """The App of the environment, read at the first call. Raises InvalidSettings."""
        with self._reading:  # functions may be threads: of two first events, one builds the App
            if self._app is None:
                self._app = App(parse(os.environ))
            return self._app

    @contextmanager
    def using(self, app: App) -> Iterator[App]:
        """Have this App for the while: of a harness that gives its threads another environment, or of a test."""
        before, self._app = self._app, app
        try:
            yield app
        finally:
            self._app = before


PROCESS = Process()


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
