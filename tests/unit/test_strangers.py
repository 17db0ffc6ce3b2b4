"""Requests that the local stack answers, by what they say of themselves."""

from local.stack.strangers import Asked, Doorman


def refused(*hosts: str) -> int:
    turned = Doorman().refusal(Asked({"host": hosts, "origin": (), "sec-fetch-site": ()}, "127.0.0.1"))
    return turned.status if turned else 0


def test_one_own_name_is_answered() -> None:
    assert refused("localhost:3000") == 0


def test_a_request_with_two_names_is_rejected_whichever_comes_first() -> None:
    assert refused("localhost:3000", "evil.example") == 421
    assert refused("localhost:3000", "localhost:3000") == 421
