"""`python -m duecourse.worker.process`: one process of a worker, which its parent starts with a socket as its input."""

import gc
import logging
import os
import random
import select
import signal
import socket
import sys
from types import FrameType
from typing import NoReturn

from duecourse.errors import InvalidSettings, StoreUnavailable
from duecourse.process import PROCESS
from duecourse.worker.apart import Apart
from duecourse.worker.board import Board
from duecourse.worker.handlers import find_handlers
from duecourse.worker.logs import log_to_stderr
from duecourse.worker.options import STOPS, Options
from duecourse.worker.serving import Serving

log = logging.getLogger("duecourse.worker")

WRONG, FAULTY, AWAY = 2, 1, 75
"""Exit codes: for wrong settings, after a fault, and where the store was away (sysexits.h: a temporary failure)."""
HEED_S = 1.0
"""Length of one wait: a signal just before a wait is heeded when the wait ends."""
READY = b"r"


def main(text: str, board: str) -> int:
    """Serve until SIGTERM, Ctrl-C or the parent's end; returns the exit code. `board` is the file of the board."""
    log_to_stderr()
    options = Options.load(text)
    sys.path.insert(0, os.getcwd())  # `python -m` has put it there; a frozen or isolated start has not
    try:
        app = PROCESS.app()
        apart = Apart(options, random.Random())
        serving = Serving(app, find_handlers(options.imports), options.queues, Board(int(board)), apart.run)
    except InvalidSettings as error:
        log.critical("wrong settings: %s", error)
        return WRONG
    except StoreUnavailable as error:
        log.critical("the store does not answer: %s", error)
        return AWAY
    return _serve(serving, options.grace_ms / 1_000)


def _serve(serving: Serving, grace_s: float) -> int:
    for number in STOPS:
        signal.signal(number, _interrupt)
    faulty = False
    parent = socket.socket(fileno=sys.stdin.fileno())
    try:
        serving.start()
        faulty = _stay(serving, parent)
    except KeyboardInterrupt:
        log.info("stopping: what runs has %g s", grace_s)
    serving.stop(grace_s)
    parent.detach()  # it stays open as long as the process: by its end the parent knows that this one has gone
    return FAULTY if faulty else 0


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Once is enough: systemd and the parent each send a signal, and a terminal does."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _stay(serving: Serving, parent: socket.socket) -> bool:
    """Tell the parent once rings are heard, and wait for its end; True after a fault."""
    while not serving.wait_ready(HEED_S):
        if serving.is_faulty or _is_over(parent, 0):
            return serving.is_faulty
    serving.warm()
    gc.freeze()
    parent.sendall(READY)
    while not serving.is_faulty:
        serving.show()
        if _is_over(parent, HEED_S):
            log.warning("the worker's parent has gone: stopping")
            return False
    return True


def _is_over(parent: socket.socket, timeout: float) -> bool:
    """True if the parent has closed its end, which it does by dying too."""
    readable, _, _ = select.select([parent], [], [], timeout)
    return bool(readable) and not parent.recv(1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
