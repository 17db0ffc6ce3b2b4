"""Texts that a caller chooses: no process remembers long ones, of which a thousand would fill its memory."""

import gc
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from duecourse.api.request import parse_body
from duecourse.base.masking import MASK, masked
from duecourse.errors import InvalidInput
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.tasks.fast_parse import read_task, read_tasks
from tests.support.matrix import MATRIX, some
from tests.support.requests import WEBHOOK, ask, wrong
from tests.support.wired import Wire

LONG = 200_000
TIMES = 50
TASK: dict[str, Any] = {"kind": "a", "payload": {}}


def text(number: int) -> str:
    """A long text of digits, another for each number."""
    return f"{number:0{LONG}}"


def _add(**fields: Any) -> None:
    with pytest.raises(InvalidInput):
        read_task(json.loads(json.dumps(TASK | fields)))


LONG_TEXTS: list[Callable[[int], Any]] = [
    lambda number: _add(delay=text(number)),
    lambda number: _add(max_wait=f"PT{text(number)}S"),
    lambda number: _add(retry={"backoff": text(number)}),
    lambda number: _add(retry={"max_backoff": f"1.{text(number)}"}),
    lambda number: masked({text(number): 1}),
    lambda number: masked({"headers": {text(number): 1}}),
]


MEGABYTE = 1024 * 1024
NUMBERS = ",".join(["0"] * 300_000)
TWICE = '{"a":1,"a":2}'
NO_BODIES = [
    f'{{"tasks":[{NUMBERS}],"a":1,"a":2}}',
    f'{{"tasks":[{{"kind":"a","payload":{{"a":1,"a":2,"l":[{NUMBERS}]}}}}]}}',
    f'{{"tasks":[{",".join([TWICE] * 100_000)}]}}',
]
"""Bodies in which a name stands twice, and much beside it."""


def peak_bytes(work: Callable[[], Any]) -> int:
    """The most memory that Python had for this work at any time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("body", some(NO_BODIES, len(NO_BODIES)))
def test_a_name_that_stands_twice_is_found_without_a_name_for_all_that_stands_beside_it(body: str) -> None:
    """A batch of 6 MiB took 440 MB more, of the 512 of the function."""

    def work() -> None:
        with pytest.raises(InvalidInput, match="stands twice"):
            parse_body(body, 6 * MEGABYTE)

    assert peak_bytes(work) < 40 * MEGABYTE


def test_doubled_names_are_found_where_a_hundred_others_are_hidden_by_one() -> None:
    hidden = f'{{"a":[{",".join([TWICE] * 100)}],"a":1}}'
    with pytest.raises(InvalidInput, match="body: has more than 100 objects in which a name stands twice"):
        parse_body(hidden)


def task(number: int) -> dict[str, Any]:
    payload = {"url": "https://a.example", "interval": 1, "until": "[?@]|" * 90 + f"a{number}"}
    return {"kind": "poll", "payload": payload}


@MATRIX
def test_what_was_read_of_expressions_is_forgotten() -> None:
    """The parser keeps 512 expressions, 100 MB."""
    read_tasks({"tasks": [task(0)]})
    tracemalloc.start()
    try:
        read_tasks({"tasks": [task(number) for number in range(1, 300)]})
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 5 * MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("use", LONG_TEXTS, ids=range(len(LONG_TEXTS)))
def test_a_long_text_is_forgotten_once_it_was_read(use: Callable[[int], Any]) -> None:
    """A thousand durations of 256 KiB, as valid as any with so many zeros before it, were kept: 256 MB."""
    use(0)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(1, TIMES):
            use(number)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 5 * LONG


def test_a_long_name_of_a_field_is_masked_all_the_same() -> None:
    assert masked({"x" * LONG + "_token": "HIDDEN"}) == {"x" * LONG + "_token": MASK}


def test_a_duration_that_is_too_long_is_rejected_by_its_field(ledger: EmbeddedLedger, wire: Wire) -> None:
    wire(ledger=ledger)
    assert list(wrong(ask("POST", "/tasks", WEBHOOK | {"delay": "0" * 1_001}))) == ["delay"]
    assert ask("POST", "/tasks", WEBHOOK | {"delay": "0" * 999 + "1"}).status == 201
