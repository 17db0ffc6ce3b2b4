"""Logs of functions that are threads."""

import json
import logging

from duecourse_local.threads.output import OUTPUT
from duecourse_local.threads.shared_process import logged


def test_a_log_on_a_functions_thread_is_in_that_functions_log_as_on_lambda() -> None:
    heard, rest = list[bytes](), list[bytes]()
    with OUTPUT.taken(rest.append), logged(), OUTPUT.of(heard.append):
        logging.getLogger("duecourse.on_expired").warning("left out", extra={"keys": ["k"]})
    record = json.loads(b"".join(heard))
    assert (record["level"], record["message"], record["keys"], rest) == ("WARNING", "left out", ["k"], [])
