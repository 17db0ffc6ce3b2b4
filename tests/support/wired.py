"""An App of a test, which handlers and clients in the test's process find."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeAlias

from duecourse.app import PROCESS, App, Parts
from duecourse.settings import Settings
from tests.support.seals import LOCAL_KEY

Wire: TypeAlias = Callable[..., App]
"""`wired_with` until the end of the test."""


@contextmanager
def wired_with(settings: Settings | None = None, **parts: Any) -> Iterator[App]:
    """An App with these settings (else the defaults) and parts for the while; none of it is left, and no thread.

    It has a key that seals credentials, unless `wrapping` is given.
    """
    parts.setdefault("wrapping", LOCAL_KEY)
    with closing(App(settings or Settings(), Parts(**parts))) as app, PROCESS.using(app):
        yield app
