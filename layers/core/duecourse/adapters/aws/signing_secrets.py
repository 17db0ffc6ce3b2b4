"""The secrets by which webhooks are signed: kept in Secrets Manager, and read again so that a rotation is seen."""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from duecourse.adapters.aws.secret import Unreadable, client_of, text_of
from duecourse.domain.signing import Secrets
from duecourse.errors import SecretUnavailable

SETTING = "DUECOURSE_SIGNING_SECRET"
KEPT_S = 300.0
"""Time for which secrets are kept: a rotation takes as long to be known to each process."""
AGAIN_S = 5.0
"""Time for which an error is kept: calls that wait for the same secrets must not read them one after the other."""
log = logging.getLogger("duecourse.secrets")


class SigningSecrets:
    """The secrets in the one by this name or ARN; safe for threads. `read` raises ValueError, with no secret in it.

    Secrets that cannot be read again are used further. `now` counts seconds also while a function is frozen, unlike the
    monotonic clock.
    """

    def __init__(
        self, name: str, read: Callable[[str], Secrets], client: Any = None, now: Callable[[], float] = time.time
    ) -> None:
        self._name = name
        self._client = client or client_of()
        self._read = read
        self._now = now
        self._process, self._reading = os.getpid(), threading.Lock()
        self._known: Secrets | None = None
        self._problem = ""
        self._until = 0.0

    def __call__(self) -> Secrets:
        """The secrets. While one thread reads them again, the others use the last ones. Raises SecretUnavailable."""
        if self._process != os.getpid():  # in a forked child, the thread that held its parent's lock is not there
            self._process, self._reading = os.getpid(), threading.Lock()
        known = self._known
        if known is not None and (self._now() < self._until or not self._reading.acquire(blocking=False)):
            return known
        if known is None:
            self._reading.acquire()
        try:
            if self._now() >= self._until:
                self._renew()
            if self._known is None:
                raise SecretUnavailable(self._problem)
            return self._known
        finally:
            self._reading.release()

    def _renew(self) -> None:
        try:
            self._known, kept_s = self._read(text_of(self._client, self._name)), KEPT_S
        except Unreadable as error:
            kept_s = self._failed(f"Secrets Manager {error}" if error.may_pass else str(error))
        except ValueError as error:
            kept_s = self._failed(f"names a secret whose value {error}")
        self._until = self._now() + kept_s

    def _failed(self, problem: str) -> float:
        self._problem = f"{SETTING}: {problem}"
        log.warning("the secrets of webhooks cannot be read: %s", self._problem)
        return AGAIN_S
