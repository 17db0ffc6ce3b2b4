"""`python -m duecourse.bridge`: the bridge as a process, set up by DUECOURSE_*."""

import argparse
import contextlib
import gc
import logging
import os
import signal
import sys
import time

from duecourse.base.metrics import measure
from duecourse.bridge import Bridge
from duecourse.errors import FieldError, InvalidSettings, InvocationRejected, StoreUnavailable
from duecourse.ledger.address import split
from duecourse.open_ledger import location_of, open_bells
from duecourse.ringing.bridge import SWITCH_S, LambdaRingHandler
from duecourse.ringing.warming import Warming
from duecourse.running.task_event import Invoker
from duecourse.services.aws import LambdaInvoker
from duecourse.settings import Settings, parse

log = logging.getLogger("duecourse.bridge")
REPORT_S = 60.0
HEED_S = 1.0
"""Length of one wait: a signal just before a wait is heeded when the wait ends."""
HELP = "Turn the bells of a duecourse ledger into invocations of its on_expired function, until SIGTERM or Ctrl-C."
EPILOG = """\
environment:
  DUECOURSE_STORE                URL of a Redis, a cluster or a Sentinel; required
  DUECOURSE_STORE_SECRET         name or ARN of the secret with that URL, instead of DUECOURSE_STORE
  DUECOURSE_NAMESPACE            prefix of every key; default duecourse
  DUECOURSE_ON_EXPIRED_FUNCTION  name of the function to invoke; default on_expired
  DUECOURSE_BRIDGE_IN_FLIGHT     maximum number of concurrent invocations; default 4
  DUECOURSE_LEASE                the functions' value: an invocation without an answer by then is repeated
  DUECOURSE_EVENTS               off: key event notifications are not read, set or subscribed to; default on
  DUECOURSE_WARM                 time before a bell at which idle functions are warmed; empty: off; default PT10S
  DUECOURSE_WARM_IDLE            time without rings after which functions count as idle; default PT5M
  DUECOURSE_WATCH                keys of other programs whose expiry becomes a task, as JSON; default none
  POWERTOOLS_SERVICE_NAME        service name in the metrics, as for the functions; default duecourse
  AWS_ENDPOINT_URL_LAMBDA        URL of Lambda's API, if the functions are not on AWS
  and AWS's usual region and credentials

examples:
  DUECOURSE_STORE=redis://cache.internal:6379/1 python -m duecourse.bridge
  DUECOURSE_STORE=redis://127.0.0.1:6379/1 AWS_ENDPOINT_URL_LAMBDA=http://127.0.0.1:3001 python -m duecourse.bridge

"bridge ready" on standard output means that earlier rings have been passed on. Each minute a line of metrics
follows, in CloudWatch's embedded format. Several bridges may run at the same time.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a bridge until SIGTERM or Ctrl-C; returns the exit status: 0 then, 1 after a fault, 2 for wrong settings."""
    parser = argparse.ArgumentParser("duecourse.bridge", description=HELP, epilog=EPILOG)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.parse_args(arguments)
    _log_to_stderr()
    try:
        settings = parse(os.environ)
        invoker = _invoker(settings)
        place = location_of(settings)
        bells = open_bells(settings, place)
    except InvalidSettings as error:
        log.critical("wrong settings: %s", error)
        return 2
    except StoreUnavailable as error:
        log.critical("the bridge cannot start: %s", error)
        return 1
    sys.setswitchinterval(SWITCH_S)
    on_expired = LambdaRingHandler(invoker, settings.on_expired_function)
    ahead = Warming(on_expired.warm, settings.warm_ms, settings.warm_idle_ms) if settings.warm_ms else None
    bridge = Bridge(bells, on_expired, in_flight=settings.bridge_in_flight, warming=ahead)
    at = split(place.url).place
    return _serve(bridge, settings, at)


def _serve(bridge: Bridge, settings: Settings, at: str) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    faulty = False
    with contextlib.suppress(KeyboardInterrupt):
        bridge.start()
        faulty = _stay(bridge, settings, at)
    for ignored in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    bridge.stop()
    measure(bridge.report())
    return int(faulty)


def _stay(bridge: Bridge, settings: Settings, at: str) -> bool:
    """Tell that it is ready, then how it goes, until a fault."""
    while not bridge.wait_ready(HEED_S):
        if bridge.wait_ended(0):
            return True
    gc.freeze()
    _announce(bridge, settings, at)
    report_at = time.monotonic() + REPORT_S
    while not bridge.wait_ended(HEED_S):
        if time.monotonic() >= report_at:
            measure(bridge.report())
            report_at += REPORT_S
    return True


def _invoker(settings: Settings) -> Invoker:
    invoker = LambdaInvoker(settings.lease_ms)  # which outlasts every function's timeout
    try:
        invoker.prepare()
    except InvocationRejected as error:
        raise InvalidSettings([FieldError("AWS_DEFAULT_REGION", str(error))]) from error
    return invoker


def _announce(bridge: Bridge, settings: Settings, at: str) -> None:
    events = "off" if bridge.stats().events is False else "on"
    watched = f", {len(settings.watch)} patterns watched" if settings.watch else ""
    to = f"{watched}, to {settings.on_expired_function}"
    sys.stdout.write(f"bridge ready: {bridge.shards} shards at {at}, events {events}{to}\n")
    sys.stdout.flush()


def _log_to_stderr() -> None:
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for chatty in ("boto3", "botocore", "urllib3"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
