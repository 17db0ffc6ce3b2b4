"""Functions of a user's own as the product under test runs them: at once, one after the other, on the test's thread."""

from collections.abc import Callable

from duecourse.domain.outcomes import Outcome
from duecourse.domain.task import Json, Task
from duecourse.engine.run import Runner
from duecourse.errors import FieldError, InvalidInput, InvocationRejected
from duecourse.handler import TaskHandler
from duecourse.testing.handlers import REMAINING_S, received
from duecourse.wiring import App


class NoFunctions:
    """An Invoker without a function: what a test wants to run it gives as a handler."""

    def prepare(self) -> None:
        """See Invoker."""

    def invoke(self, function: str, event: Json) -> Json:
        """See Invoker."""
        del event
        raise InvocationRejected(f"this test has no {function}: give its kind a handler by duecourse.handle(…)")

    send = invoke


class Functions:
    """Handlers by kind, each with the App that `app` answers; every other kind is the product's own.

    They are the kinds that may be asked for (duecourse.engine.kinds.Kinds): one that is added later counts at once.
    """

    def __init__(self, app: Callable[[], App]) -> None:
        self._app = app
        self._handlers: dict[str, TaskHandler] = {}
        self._interrupted: KeyboardInterrupt | None = None

    def add(self, kind: str, handler: TaskHandler) -> None:
        """Run tasks of this kind by this handler from now on."""
        self._handlers[kind] = handler

    def has(self, kind: str) -> bool:
        """True if the kind has a handler."""
        return kind in self._handlers

    def check(self, kind: str, *, shown: bool) -> None:
        """See duecourse.engine.kinds.Kinds."""
        del shown
        app = self._app()
        if not self.has(kind) and kind not in app.known_kinds:
            raise InvalidInput([FieldError("kind", self._unknown(kind, {*app.known_kinds, *self._handlers}))])

    def check_receiver(self, kind: str, *, shown: bool) -> None:
        """See duecourse.engine.kinds.Kinds."""
        del shown
        app = self._app()
        if not self.has(kind) and kind not in app.handed_kinds:
            raise InvalidInput(
                [FieldError("notify_done.target", self._unknown(kind, {*app.handed_kinds, *self._handlers}))]
            )

    def _unknown(self, kind: str, known: set[str]) -> str:
        listed = ", ".join(sorted(known)) or "none"
        return f"this test has no handler of {kind!r}, only of: {listed}. Give one by duecourse.handle({kind!r}, …)"

    def runner(self) -> Runner:
        """Runner of every kind."""
        app = self._app()
        return app.runner(lambda kind: self._run if self.has(kind) else app.kinds.get(kind), app.seals.opened)

    def stop_if_interrupted(self) -> None:
        """Raise the Ctrl-C that came while a handler ran: the engine retries whatever a handler raises."""
        interrupted, self._interrupted = self._interrupted, None
        if interrupted:
            raise interrupted

    def _run(self, task: Task) -> Outcome | None:
        app = self._app()
        try:
            return self._handlers[task.kind].run(app, received(app.filled(task), lambda: REMAINING_S * 1_000))
        except KeyboardInterrupt as interrupted:
            self._interrupted = interrupted
            raise
