"""Query parameters: those that a route does not have are rejected by name, whatever the method."""

import pytest

from duecourse.errors import MAX_ERRORS, MAX_FIELD
from duecourse.ledger.embedded.ledger import EmbeddedLedger
from tests.support.ledger import add, stored_task
from tests.support.requests import ask, wrong

UNKNOWN = "is not a parameter of this route"


@pytest.mark.parametrize(
    ("path", "query", "known"),
    [
        (
            "/tasks",
            "stat=dead&queue=default",
            ": state?; known: queue, state, kind, group, error, since, cursor, limit",
        ),
        ("/tasks/a", "stat=1", "; known: queue"),
        ("/queues", "stat", "; known: after, limit"),
        ("/health", "stat=", "; known: none"),
    ],
)
def test_an_unknown_parameter_is_named_with_those_that_there_are(path: str, query: str, known: str) -> None:
    assert wrong(ask("GET", path, query=query)) == {"stat": UNKNOWN + known}


def test_a_misspelt_force_takes_nothing_from_a_worker_and_cancels_nothing(ledger: EmbeddedLedger) -> None:
    add(ledger, "a", delay_ms=60_000)
    assert wrong(ask("DELETE", "/tasks/a", query="forced=true")) == {
        "forced": f"{UNKNOWN}: force?; known: queue, force"
    }
    assert stored_task(ledger, "a").status == "scheduled"
    assert ask("DELETE", "/tasks/a", query="force").status == 204


def test_a_request_that_is_signed_in_its_url_is_taken(ledger: EmbeddedLedger) -> None:
    add(ledger, "a", delay_ms=60_000)
    assert ask("GET", "/tasks/a", query="X-Amz-Signature=0a1b&X-Amz-Date=20261122T100000Z&queue=default").status == 200


def test_an_answer_to_many_parameters_is_short() -> None:
    query = "&".join(f"{'a' * MAX_FIELD}{number}=" for number in range(2 * MAX_ERRORS))
    errors = ask("GET", "/tasks", query=query).body["errors"]
    assert len(errors) == MAX_ERRORS + 1
    assert all(len(error["field"]) <= MAX_FIELD for error in errors)


def test_a_path_that_nothing_answers_to_is_not_found_whatever_its_parameters() -> None:
    assert ask("GET", "/nothing", query="stat=1").status == 404
    assert ask("GET", "/docs", query="stat=1").status == 200
