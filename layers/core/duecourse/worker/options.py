"""Options, log lines and handlers of a worker's processes."""

import importlib
import json
import logging
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Self

from duecourse.errors import FieldError, InvalidHandler, InvalidSettings
from duecourse.task_handlers import TaskHandler

# Options of a worker, as its command line and its processes have them.

STOPS = (signal.SIGTERM, signal.SIGINT)
"""Signals that stop a worker."""
GRACE_MS = 25_000
"""Time for running tasks after SIGTERM: less than the half minute after which Kubernetes kills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a worker: the modules with its handlers, its queues (none: all), its processes, its end."""

    imports: tuple[str, ...]
    queues: tuple[str, ...] = ()
    processes: int = 1
    concurrency: int | None = None
    store: str = ""
    health_port: int | None = None
    health_host: str | None = None
    grace_ms: int = GRACE_MS

    def check(self) -> Self:
        """These options. Raises InvalidSettings, which names the wrong ones."""
        bounds = (("processes", self.processes, 64), ("concurrency", self.concurrency, 256))
        problems = [
            FieldError(f"--{name}", f"must be 1 to {most}, not {value}")
            for name, value, most in bounds
            if value is not None and not 1 <= value <= most
        ]
        if not self.imports:
            problems.append(FieldError("--import", "is required: name a module with handlers, such as myapp.kinds"))
        if self.health_port is not None and not 0 <= self.health_port <= 65_535:
            problems.append(FieldError("--health-port", f"must be 0 to 65535, not {self.health_port}"))
        if problems:
            raise InvalidSettings(problems)
        return self

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment with the settings that these options set."""
        given = {
            "DUECOURSE_STORE": self.store,
            "DUECOURSE_PARALLEL": "" if self.concurrency is None else str(self.concurrency),
        }
        return {**environ, **{name: value for name, value in given.items() if value}}

    def dump(self) -> str:
        """The options as text, for a process's command line."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Self:
        """The options in such a text."""
        given = json.loads(text)
        return cls(**given | {name: tuple(given[name]) for name in ("imports", "queues")})


# Log lines of a worker's processes, on standard error.

FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s [%(process)d %(duecourse_task)s] %(name)s: %(message)s"


def log_to_stderr() -> None:
    """Log lines with the process's number and the id of the task that they are about."""
    formatter = logging.Formatter(FORMAT, "%Y-%m-%dT%H:%M:%S", defaults={"duecourse_task": "-"})
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for chatty in ("boto3", "botocore", "urllib3"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


# Handlers of a user's modules, by the kinds that they run.

NO_KIND = 'names no kind: write @task_handler(kind="report"), or @report.handler of a Kind'


def find_handlers(modules: Iterable[str]) -> dict[str, TaskHandler]:
    """Import the modules, and answer the handlers in their namespaces, by kind.

    Raises InvalidSettings where a module cannot be imported or has none, where a handler names no kind, and where two
    name the same.
    """
    found: dict[str, TaskHandler] = {}
    problems: list[FieldError] = []
    for name in modules:
        handlers = dict(_handlers_of(name))
        if not handlers:
            problems.append(FieldError(f"--import {name}", "has no handler: decorate a function with @task_handler"))
        for place, handler in handlers.items():
            other = found.setdefault(handler.kind, handler) if handler.kind else None
            if other is None:
                problems.append(FieldError(place, NO_KIND))
            elif other is not handler:
                problems.append(FieldError(place, f"names the kind {handler.kind}, as another handler does"))
    if problems:
        raise InvalidSettings(problems)
    return found


def _handlers_of(name: str) -> Iterator[tuple[str, TaskHandler]]:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        problem = f"cannot be imported: {type(error).__name__}: {error}. The folder of your code must be the working "
        raise InvalidSettings([FieldError(f"--import {name}", f"{problem}folder, or on PYTHONPATH")]) from error
    except InvalidHandler as error:
        raise InvalidSettings([FieldError(f"--import {name}", str(error))]) from error
    for attribute, value in vars(module).items():
        if isinstance(value, TaskHandler):
            yield f"{name}.{attribute}", value
