"""The demo's story of a schedule: it holds, is quick, and tells what happened."""

import time

import pytest

from duecourse_local.demo.stories import nights

MOST_S = 2.0


@pytest.mark.slow
def test_the_story_of_the_schedule_holds_in_two_seconds() -> None:
    nights()  # what is loaded once is another's time
    began = time.process_time()
    told = " ".join(nights().lines)
    assert time.process_time() - began < MOST_S
    assert "52 Sundays" in told
    assert "ran at 03:00 CEST (01:00 UTC)" in told
    assert "ran once, at 02:30 CEST (00:30 UTC)" in told
