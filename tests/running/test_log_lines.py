"""Log lines of tasks that run beside each other: each carries its own task."""

import contextvars
import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest
from aws_lambda_powertools import Logger

from duecourse.ledger.embedded.ledger import EmbeddedLedger
from duecourse.ledger.task import Done, Task
from duecourse.running.run import FIELD, log_context
from tests.support.engine import ample, engine
from tests.support.ledger import SHARD, claim_one, new

log = logging.getLogger("tests.own")


@pytest.fixture
def made() -> Iterator[list[logging.LogRecord]]:
    """Every record of the logger above."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield records
    log.removeHandler(handler)


def task(id: str) -> Task:
    """A task that runs."""
    return claim_one(EmbeddedLedger(), id)


def test_each_line_carries_the_id_of_its_task(made: list[logging.LogRecord], ledger: EmbeddedLedger) -> None:
    both = threading.Barrier(2, timeout=30)

    def kind(task: Task) -> Done:
        both.wait()
        log.info("I am %s", task.id)
        both.wait()
        return Done()

    ledger.add([new("a"), new("b")])
    with engine(ledger, kind) as made_of:
        assert made_of.drainer.drain([SHARD], ample).done == 2
    log.info("nobody's")
    assert {record.getMessage(): getattr(record, FIELD, None) for record in made} == {
        "I am a": "a",
        "I am b": "b",
        "nobody's": None,
    }


def test_powertools_writes_it_into_its_lines() -> None:
    lines = io.StringIO()
    logger = Logger(service="test", stream=lines)
    with log_context(task("r1")):
        logger.info("working", extra={"task_id": "a field of the handler's own"})
    told = json.loads(lines.getvalue())
    assert (told["message"], told[FIELD]) == ("working", "r1")
    assert {name: told[name] for name in told if name.startswith("duecourse_")} == {
        "duecourse_task": "r1",
        "duecourse_queue": "default",
        "duecourse_kind": "work",
        "duecourse_attempt": 1,
    }


def test_a_thread_of_the_handlers_own_carries_it_in_a_copy_of_the_context(made: list[logging.LogRecord]) -> None:
    with log_context(task("r1")):
        given = contextvars.copy_context()
        for run in (lambda: given.run(log.info, "given"), lambda: log.info("alone")):
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
    assert [getattr(record, FIELD, None) for record in made] == ["r1", None]


def test_a_factory_that_was_there_makes_the_records_still(made: list[logging.LogRecord]) -> None:
    before = logging.getLogRecordFactory()

    class Own(logging.LogRecord):
        """Another program's."""

    try:
        logging.setLogRecordFactory(Own)
        with log_context(task("r1")):
            log.info("one")
        with log_context(task("r2")):
            log.info("two")
    finally:
        logging.setLogRecordFactory(before)
    assert [(type(record), getattr(record, FIELD)) for record in made] == [(Own, "r1"), (Own, "r2")]


def test_the_line_of_an_exception_names_the_task_its_queue_kind_and_attempt(
    ledger: EmbeddedLedger, caplog: pytest.LogCaptureFixture
) -> None:
    def kind(_task: Task) -> Done:
        raise LookupError("no such customer")

    ledger.add([new("a")])
    with engine(ledger, kind) as made_of:
        assert made_of.drainer.drain([SHARD], ample).retried == 1
    [record] = [one for one in caplog.records if one.exc_info]
    assert record.getMessage().startswith("task a raised at test_log_lines.py, line ")
    assert record.getMessage().endswith("(queue default, kind work, attempt 1)")
    assert vars(record)["duecourse_kind"] == "work"
