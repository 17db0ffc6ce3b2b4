"""Every refusal as a problem document: its status, and what it tells and what not."""

import json

import pytest

from duecourse import errors
from duecourse.errors import DuecourseError, FieldError
from duecourse.wire import problems
from duecourse.wire.problems import describe


def offspring(base: type[DuecourseError]) -> set[type[DuecourseError]]:
    """The errors below `base`."""
    return {base, *(cls for child in base.__subclasses__() for cls in offspring(child))}


def made(cls: type[DuecourseError]) -> DuecourseError:
    """One of them."""
    return cls([FieldError("a", "is wrong")]) if issubclass(cls, errors.InvalidInput) else cls()


@pytest.mark.parametrize("cls", sorted(offspring(DuecourseError), key=str), ids=lambda cls: cls.__name__)
def test_every_error_of_the_tree_has_a_document(cls: type[DuecourseError]) -> None:
    problem = describe(made(cls))
    document = json.loads(json.dumps(problem.document))
    assert {"type", "title", "status", "detail"} <= document.keys()
    assert document["status"] == problem.status
    assert document["title"]


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
    assert describe(error).status == status


def test_a_conflict_tells_its_reason() -> None:
    assert describe(errors.TaskDead()).document == {
        "type": "urn:duecourse:problem:task-dead",
        "title": "The task is dead: replay or delete it.",
        "status": 409,
        "detail": "The task is dead: replay or delete it.",
        "reason": "dead",
    }


def test_wrong_fields_are_listed() -> None:
    document = describe(errors.InvalidInput([FieldError("a.b", "is wrong")])).document
    assert document["errors"] == [{"field": "a.b", "problem": "is wrong"}]


def test_an_unexpected_error_tells_nothing_of_itself() -> None:
    for error in (KeyError("secret"), errors.InvalidSettings([FieldError("DUECOURSE_STORE", "secret")])):
        assert "secret" not in json.dumps(describe(error).document)


def test_only_what_may_pass_by_itself_asks_to_come_again() -> None:
    assert describe(errors.StoreUnavailable()).headers == {"Retry-After": "1"}
    assert describe(errors.TaskNotFound()).headers == {}
