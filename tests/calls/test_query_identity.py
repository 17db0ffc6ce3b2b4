"""What makes two queries one, and under which name a host is bounded."""

from typing import Any

import pytest

from duecourse.ledger.api_query import Query, queue_of

PAYLOAD = {"url": "https://api.example.com/reports/7", "method": "GET", "interval": "PT10S", "until": "ready"}
QUERY = Query(PAYLOAD, 0)


@pytest.mark.parametrize("change", [{"interval": "PT1S"}, {"timeout": "PT1S"}, {"headers": {}}, {"body": None}])
def test_how_often_and_how_patiently_it_is_asked_makes_no_other_query(change: dict[str, Any]) -> None:
    assert Query({**PAYLOAD, **change}, 0).id == QUERY.id


@pytest.mark.parametrize(
    "change",
    [{"auth": "billing"},
     {"url": "https://api.example.com/reports/8"}, {"method": "POST"}, {"headers": {"accept": "a"}}, {"body": {"a": 1}},
     {"until": "done"}, {"failed_when": "bad"}, {"result": "rows"}],
)  # fmt: skip
def test_what_is_asked_makes_another(change: dict[str, Any]) -> None:
    assert Query({**PAYLOAD, **change}, 0).id != QUERY.id


def test_two_credentials_make_two_queries_and_none_leaves_an_id_as_it_was_before_there_were_any() -> None:
    ids = {Query({**PAYLOAD, **auth}, 0).id for auth in ({}, {"auth": "billing"}, {"auth": "crm"})}
    assert len(ids) == 3
    assert QUERY.id == Query({**PAYLOAD, "auth": None}, 0).id == "q-617823ce8292c502f3cc480f27f23d75@api.example.com"


def test_the_order_of_fields_and_the_case_of_header_names_make_no_other() -> None:
    one = {"A": "1", "b": "2"}, {"x": [{"p": 1, "q": 2, "3": 4}]}
    two = {"B": "2", "a": "1"}, {"x": ({"q": 2, "p": 1, 3: 4},)}  # as a caller in Python may put it
    ids = {Query({**PAYLOAD, "headers": headers, "body": body}, 0).id for headers, body in (one, two)}
    assert len(ids) == 1


@pytest.mark.parametrize(
    "url", ["HTTPS://API.example.com/reports/7", "https://api.example.com:443/reports/7#top"], ids=["case", "port"]
)
def test_what_makes_no_other_request_of_an_address_makes_no_other_query(url: str) -> None:
    assert Query({**PAYLOAD, "url": url}, 0).id == QUERY.id


@pytest.mark.parametrize(
    ("one", "two"),
    [("h/a", "h/A"), ("h/a?", "h/a"), ("h/a%41", "h/aA"), ("h.", "h"), ("h:81", "h"), ("u:1@h", "u:2@h"),
     ("ß.example", "ss.example"), ("127.1", "127.0.0.1")],
)  # fmt: skip
def test_addresses_that_may_be_told_apart_make_two_queries(one: str, two: str) -> None:
    groups = {Query({**PAYLOAD, "url": f"http://{url}"}, 0).group for url in (one, two)}
    assert len(groups) == 2


@pytest.mark.parametrize(
    ("url", "queue"),
    [
        ("https://API.Example.com:443/a", "query:api.example.com"),
        ("http://api.example.com.:80", "query:api.example.com"),
        ("http://api.example.com:8080/a", "query:api.example.com:8080"),
        ("http://user:secret@api.example.com/", "query:api.example.com"),
        ("http://[::1]:8080/", "query:::1:8080"),
        ("http://[0:0:0:0:0:0:0:1]/", "query:::1"),
        ("http://[::ffff:127.0.0.1]/", "query:127.0.0.1"),
        ("http://127.1/", "query:127.0.0.1"),
        ("http://0x7f000001:80/", "query:127.0.0.1"),
        ("http://ex%61mple.com/", "query:example.com"),
        ("http://Bücher.example/", "query:xn--bcher-kva.example"),
        ("http://cafe1/", "query:cafe1"),
        ("http://my_service/", "query:my_service"),
    ],
)
def test_each_host_has_a_queue_of_its_own(url: str, queue: str) -> None:
    assert queue_of(Query({**PAYLOAD, "url": url}, 0).id) == queue


@pytest.mark.parametrize(("one", "two"), [("a" * 70, "a" * 71), ("a;b", "a,b")])
def test_a_host_that_is_too_long_or_strange_is_told_apart_by_a_hash(one: str, two: str) -> None:
    queues = [queue_of(Query({**PAYLOAD, "url": f"https://{host}/"}, 0).id) for host in (one, two)]
    assert len(set(queues)) == 2
    assert all(len(queue) <= 64 and queue.isascii() for queue in queues)
