"""Logs of functions that are threads."""

import json
import logging

from local.threads.house import logged
from local.threads.voices import VOICES


def test_a_log_on_a_functions_thread_is_in_that_functions_log_as_on_lambda() -> None:
    heard, rest = list[bytes](), list[bytes]()
    with VOICES.taken(rest.append), logged(), VOICES.of(heard.append):
        logging.getLogger("duecourse.on_expired").warning("left out", extra={"keys": ["k"]})
    record = json.loads(b"".join(heard))
    assert (record["level"], record["message"], record["keys"], rest) == ("WARNING", "left out", ["k"], [])
