"""Requests that the local stack answers, by what they say of themselves."""

from duecourse_local.harness.guard import Guard, Origin


def refused(*hosts: str) -> int:
    rejection = Guard().rejection(Origin({"host": hosts, "origin": (), "sec-fetch-site": ()}, "127.0.0.1"))
    return rejection.status if rejection else 0


def test_one_own_name_is_answered() -> None:
    assert refused("localhost:3000") == 0


def test_a_request_with_two_names_is_rejected_whichever_comes_first() -> None:
    assert refused("localhost:3000", "evil.example") == 421
    assert refused("localhost:3000", "localhost:3000") == 421
