"""Every refusal as a problem document: its status, and what it tells and what not."""

import json

import pytest

from duecourse import errors
from duecourse.api import problems
from duecourse.api.problems import problem_of
from duecourse.errors import DuecourseError, FieldError
from duecourse.services.rabbitmq import LoginRejected
from duecourse_local.reference.openapi import ABSTRACT


def offspring(base: type[DuecourseError]) -> set[type[DuecourseError]]:
    """The errors below `base`."""
    assert LoginRejected, "is imported with its module alone"
    return {base, *(cls for child in base.__subclasses__() for cls in offspring(child))}


def made(cls: type[DuecourseError]) -> DuecourseError:
    """One of them."""
    if cls is errors.BeyondQuota:
        return cls("tenant_max_bytes", "payload")
    return cls([FieldError("a", "is wrong")]) if issubclass(cls, errors.InvalidInput) else cls()


@pytest.mark.parametrize("cls", sorted(offspring(DuecourseError), key=str), ids=lambda cls: cls.__name__)
def test_every_error_of_the_tree_has_a_document(cls: type[DuecourseError]) -> None:
    problem = problem_of(made(cls))
    document = json.loads(json.dumps(problem.document))
    assert {"type", "title", "status", "detail"} <= document.keys()
    assert document["status"] == problem.status
    assert document["title"]


CODES = {
    "beyond-quota": 422,
    "changed-since": 409,
    "task-damaged": 409,
    "seal-broken": 409,
    "body-too-large": 413,
    "foreign-tenant": 403,
    "internal": 500,
    "invalid-input": 422,
    "key-in-use": 409,
    "schedule-exists": 409,
    "version-conflict": 409,
    "key-reused": 422,
    "lease-lost": 409,
    "malformed-body": 400,
    "malformed-key": 400,
    "no-such-route": 404,
    "method-not-allowed": 405,
    "no-tenant": 403,
    "unverified-caller": 403,
    "not-primary": 503,
    "query-failed": 502,
    "query-not-found": 404,
    "queue-not-found": 404,
    "quota-exceeded": 429,
    "role-missing": 403,
    "results-unavailable": 503,
    "store-full": 503,
    "partly-added": 503,
    "store-in-use": 503,
    "seal-unavailable": 503,
    "store-unavailable": 503,
    "task-cancelled": 409,
    "task-dead": 409,
    "past-deadline": 409,
    "task-done": 409,
    "task-leased": 409,
    "task-not-found": 404,
    "task-scheduled": 409,
    "unsupported-body": 415,
}
"""What callers match: a code is added here, and never renamed or removed."""


def test_the_codes_are_these() -> None:
    shown = [problem_of(made(cls)).document for cls in offspring(DuecourseError) - {errors.Conflict}]
    assert {document["type"] for document in shown} == {f"urn:duecourse:problem:{code}" for code in CODES}


@pytest.mark.parametrize("cls", sorted(offspring(DuecourseError), key=str), ids=lambda cls: cls.__name__)
def test_an_error_that_callers_see_has_a_code_of_its_own(cls: type[DuecourseError]) -> None:
    if cls not in ABSTRACT and problems.status_of(cls) != 500:
        assert CODES[vars(cls)["code"]] == problems.status_of(cls)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (problems.MalformedBody(), 400),
        (errors.TaskNotFound(), 404),
        (errors.TaskLeased(), 409),
        (problems.BodyTooLarge(), 413),
        (problems.UnsupportedBody(), 415),
        (errors.InvalidInput([]), 422),
        (errors.StoreUnavailable(), 503),
        (errors.StoreFull(), 503),
        (errors.ResultsUnavailable(), 503),
        (errors.InvalidSettings([]), 500),
        (ValueError(), 500),
    ],
)
def test_each_refusal_has_its_status(error: Exception, status: int) -> None:
    assert problem_of(error).status == status


def test_a_conflict_tells_its_reason() -> None:
    assert problem_of(errors.TaskDead()).document == {
        "type": "urn:duecourse:problem:task-dead",
        "title": "The task is dead: replay or delete it.",
        "status": 409,
        "detail": "The task is dead: replay or delete it.",
        "reason": "dead",
    }


def test_wrong_fields_are_listed() -> None:
    document = problem_of(errors.InvalidInput([FieldError("a.b", "is wrong")])).document
    assert document["errors"] == [{"field": "a.b", "problem": "is wrong"}]


def test_an_unexpected_error_tells_nothing_of_itself() -> None:
    for error in (KeyError("secret"), errors.InvalidSettings([FieldError("DUECOURSE_STORE", "secret")])):
        assert "secret" not in json.dumps(problem_of(error).document)


def test_only_what_may_pass_by_itself_asks_to_come_again() -> None:
    assert problem_of(errors.StoreUnavailable()).headers == {"Retry-After": "1"}
    assert problem_of(errors.TaskNotFound()).headers == {}


def test_a_batch_that_was_cut_off_is_told_task_by_task() -> None:
    problem = problem_of(errors.PartlyAdded([errors.Part("a", True), errors.Part("b", False)]))
    assert (problem.status, problem.headers) == (503, {"Retry-After": "1"})
    assert problem.document["tasks"] == [{"id": "a", "added": True}, {"id": "b", "added": False}]
