"""The worker's command: check the settings, start the parent, serve health, stay."""

import logging
import os
import sys
from contextlib import ExitStack, suppress
from functools import partial

from duecourse import ledgers
from duecourse.domain.address import WITHOUT_BELLS, split
from duecourse.engine.bereft import Bereft
from duecourse.errors import FieldError, InvalidSettings, StoreUnavailable
from duecourse.settings import Settings, parse
from duecourse.worker.health import default_host, health, served
from duecourse.worker.logs import log_to_stderr
from duecourse.worker.options import Options
from duecourse.worker.parent import Parent
from duecourse.worker.process import AWAY, WRONG

log = logging.getLogger("duecourse.worker")

NO_STORE = "is required: give --store URL, set DUECOURSE_STORE, or, beside duecourse up, begin with duecourse run"


def run(options: Options) -> int:
    """Work until SIGTERM or Ctrl-C; returns the exit code: 0 then, 2 for wrong settings, else a process's own."""
    log_to_stderr()
    try:
        settings = _settings(options.check())
        parent = Parent(options, Bereft(partial(ledgers.open_store, settings)))
        with ExitStack() as stack:
            health_at = _open_health(stack, options, settings, parent)
            return parent.run(partial(_announce, options, _place(settings), health_at))
    except InvalidSettings as error:
        log.critical("wrong settings: %s", error)
        return WRONG
    except StoreUnavailable as error:
        log.critical("the store does not answer: %s", error)
        return AWAY


def _settings(options: Options) -> Settings:
    settings = parse(options.environment(os.environ))
    if not (settings.store or settings.store_secret):
        raise InvalidSettings([FieldError("--store", NO_STORE)])
    scheme = split(settings.store).scheme
    if scheme in WITHOUT_BELLS:
        problem = (
            f"must be a Redis: a store at {scheme}:// is within one process, and a worker has processes of its own"
        )
        raise InvalidSettings([FieldError("DUECOURSE_STORE", problem)])
    return settings


def _open_health(stack: ExitStack, options: Options, settings: Settings, parent: Parent) -> str:
    if options.health_port is None:
        return ""
    store = ledgers.open_store(settings)
    look = partial(health, store.ping, parent.ready, options.processes, parent.left_out)
    host = default_host() if options.health_host is None else options.health_host
    try:
        port = stack.enter_context(served(host, options.health_port, look))
    except OSError as error:
        problem = f"cannot be listened on, at {host or 'every address'}: {error}"
        raise InvalidSettings([FieldError(f"--health-port {options.health_port}", problem)]) from error
    return f", health on port {port} of {host or 'every address'}"


def _place(settings: Settings) -> str:
    """Place of the ledger for people; no password is in it."""
    return f"the secret {settings.store_secret}" if settings.store_secret else split(settings.store).place


def _announce(options: Options, place: str, health_at: str) -> None:
    queues = f"queues {', '.join(options.queues)}" if options.queues else "every queue"
    with suppress(BrokenPipeError):  # whoever started it reads no more
        processes = "1 process" if options.processes == 1 else f"{options.processes} processes"
        sys.stdout.write(f"worker ready: {processes}, {queues} at {place}{health_at}\n")
        sys.stdout.flush()
