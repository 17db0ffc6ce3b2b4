"""Options of a worker, as its command line and its processes have them."""

import json
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

from duecourse.errors import FieldError, InvalidSettings

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
