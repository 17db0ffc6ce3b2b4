"""Durations and rates: each way in takes the same texts, and no other."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import typer
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from duecourse.api.router import DOCUMENT
from duecourse.api.watched_keys import WatchSetting
from duecourse.base.times import parse_duration
from duecourse.calls.request_and_answer import duration_ms
from duecourse.client.keyword_settings import read_settings
from duecourse.errors import DuecourseError
from duecourse.ledger.task import NewTask
from duecourse.queries.http import AskQuery
from duecourse.queues.http import RateField, SetQueue
from duecourse.reminders.http import Lead
from duecourse.schedules.http import AddSchedule
from duecourse.settings import parse
from duecourse.tasks.fast_parse import parse_fast
from duecourse.tasks.http import AddTask
from duecourse.testing import Duecourse
from duecourse_local.cli.options import duration as option
from duecourse_local.cli.options import seconds

WORK = {"kind": "report", "payload": {}}
STORE = {"DUECOURSE_STORE": "memory://"}
HOOK = {"kind": "webhook", "payload": {"url": "https://hooks.example.com"}}
QUERY = {"url": "https://api.example.com", "until": "done"}


def _usual(text: str) -> int:
    task = parse_fast(WORK | {"delay": text})
    if task is None:
        raise ValueError("must be read by the model")
    return task.delay_ms


def _model(text: str) -> int:
    task: NewTask = AddTask.model_validate(WORK | {"delay": text}).task()
    return task.delay_ms


def _option(text: str) -> int:
    return parse_duration(option(text))


DOORS: dict[str, Callable[[str], int | None]] = {
    "reader": parse_duration,
    "POST /tasks, the usual way": _usual,
    "POST /tasks, by the model": _model,
    "deadline": lambda text: AddTask.model_validate(WORK | {"deadline": text}).deadline.after_ms,  # type: ignore[union-attr]
    "backoff": lambda text: (
        AddTask.model_validate(WORK | {"retry": {"backoff": text, "max_backoff": "2d"}}).task().retry.backoff_ms
    ),
    "interval of a query": lambda text: AskQuery.model_validate(QUERY | {"interval": text}).interval,
    "interval of a kept poll": lambda text: duration_ms({"interval": text}, "interval"),
    "schedule": lambda text: AddSchedule.model_validate(HOOK | {"id": "a", "repeat": {"every": text}}).repeat.every,  # type: ignore[union-attr]
    "lead of a reminder": lambda text: TypeAdapter(Lead).validate_python(text),
    "setting of a queue": lambda text: SetQueue.model_validate({"retention": text}).changes()["retention_ms"],  # type: ignore[dict-item,return-value]
    "rate": lambda text: TypeAdapter(RateField).validate_python(f"1/{text}").per,
    "setting": lambda text: parse(STORE | {"DUECOURSE_RETENTION": text}).retention_ms,
    "setting that may be off": lambda text: (
        parse(STORE | {"DUECOURSE_WARM": text, "DUECOURSE_WARM_IDLE": "P2D"}).warm_ms
    ),
    "setting of a client": lambda text: read_settings("memory://", {"http_timeout": text}).http_timeout_ms,
    "window of a watch": lambda text: (
        WatchSetting.model_validate({"pattern": "a-{b}", "kind": "report", "window": text}).window_ms
    ),
    "option": _option,
    "option in seconds": lambda text: round(seconds(text) * 1000),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("text", "ms"),
    [("90s", 90_000), ("5m", 300_000), ("1h30m", 5_400_000), ("24h", 86_400_000), ("PT1,5S", 1_500), ("60", 60_000)],
)
def test_each_way_in_takes_the_same_durations(door: str, text: str, ms: int) -> None:
    assert DOORS[door](text) == ms


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("text", ["1e3", "+5", ".5", "5.", "-0", " 5 ", "P1M", "5M", "1_0", "٣"])
def test_each_way_in_rejects_the_same_durations(door: str, text: str) -> None:
    with pytest.raises((ValueError, ValidationError, DuecourseError, typer.BadParameter)):
        DOORS[door](text)


@pytest.mark.parametrize(("text", "ms"), [("90s", 90_000), ("1h30m", 5_400_000), ("PT1,5S", 1_500)])
def test_the_clock_of_a_test_is_moved_by_the_same_durations(duecourse: Duecourse, text: str, ms: int) -> None:
    before = duecourse.now
    duecourse.advance(text)
    assert (duecourse.now - before).total_seconds() * 1000 == ms


SCHEMAS: dict[str, Any] = json.loads(DOCUMENT.read_text())["components"]["schemas"]
DURATION = SCHEMAS["Duration"]["anyOf"][0]
RATE = SCHEMAS["SetQueue"]["properties"]["rate"]["anyOf"]
LIKE_A_DURATION = st.one_of(
    st.from_regex(re.compile(DURATION["pattern"], re.ASCII)),
    st.from_regex(re.compile(r"[+-]?[0-9]{0,3}[.,]?[0-9]{0,2}(e[0-9])?([wdhmsM]|ms)?", re.ASCII), fullmatch=True),
    st.text("PTWDHMSYwdhms0123456789.,+-e_ \n", max_size=12),
    st.text(max_size=12),
)


def _fits(schema: Any, text: str) -> bool:
    # In ECMAScript, $ is the end of the text alone.
    return len(text) <= schema["maxLength"] and bool(re.search(schema["pattern"].replace("$", r"\Z"), text))


def _is_taken(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError as error:
        return "100 years" in str(error) or "PT0.1S and P1D" in str(error) or "greater than" in str(error)
    return True


@pytest.mark.slow
@given(LIKE_A_DURATION)
@example("PT5M\n")
@example("-0")
@example("1,5")
@example("\u0663")
@example("0" * 1_001)
def test_a_text_is_a_duration_just_where_the_document_says_so(text: str) -> None:
    assert _is_taken(_model, text) == _fits(DURATION, text)


@pytest.mark.slow
@given(st.from_regex(re.compile(r"[0-9]{1,3}/(ms|[wdhmsM]|[0-9]s|PT1[SM])?", re.ASCII)) | LIKE_A_DURATION)
@example("10/s\n")
@example("10/ s")
def test_a_text_is_a_rate_just_where_the_document_says_so(text: str) -> None:
    [schema] = [one for one in RATE if one.get("type") == "string"]
    is_taken = _is_taken(TypeAdapter(RateField).validate_python, text)
    assert is_taken == _fits(schema, text) or len(text.partition("/")[0]) > 6  # a count beyond the bound
