"""The bridge's threads: each tells when it ends, which before a stop is a fault."""

import threading
from collections.abc import Callable


def daemon(name: str, run: Callable[[], None], on_end: Callable[[], None]) -> threading.Thread:
    """A thread that calls `run`, and `on_end` however that ends. It keeps no process from ending."""

    def body() -> None:
        try:
            run()
        finally:
            on_end()

    return threading.Thread(target=body, name=name, daemon=True)
