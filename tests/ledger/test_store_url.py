"""A store's URL: its parts are the same on every patch release of Python."""

import ast

import pytest

from duecourse.ledger.address import nodes_of, split
from tests.support.project import ROOT


@pytest.mark.parametrize(
    ("url", "nodes"),
    [
        ("redis-cluster://h:7000,[::1]:7001,k", [("h", 7000), ("::1", 7001), ("k", 6379)]),
        ("redis-cluster://[::1]:7000,[fe80::2]", [("::1", 7000), ("fe80::2", 6379)]),
        ("redis+sentinel://ada:p@ss@A:26379,b/main/2", [("a", 26379), ("b", 6379)]),
        ("rediss://h?ssl_cert_reqs=none", [("h", 6379)]),
        ("unix:///run/redis.sock?db=1", []),
    ],
)
def test_every_server_of_a_list_is_found(url: str, nodes: list[tuple[str, int]]) -> None:
    assert nodes_of(url, 6379) == nodes


def test_the_parts_of_a_url_are_as_they_are_written_there() -> None:
    parts = split("redis+sentinel://ada:p%2Fss@[::1]:1,b/main/2?db=3#x")
    assert parts == ("redis+sentinel", "ada:p%2Fss", "[::1]:1,b", "/main/2", "db=3")
    assert parts.place == "redis+sentinel://[::1]:1,b/main/2"


def test_no_module_that_knows_a_stores_url_has_it_split_by_pythons_parser() -> None:
    # On 3.11.2 it refuses a list of hosts with an IPv6 address in it, which 3.11.7 takes.
    package = ROOT / "layers/core/duecourse"
    knowing = ["settings.py", "open_ledger.py", "ledger/address.py", "ledger/connect.py", "bridge/__main__.py"]
    for name in knowing:
        imported = {
            alias.name
            for node in ast.walk(ast.parse((package / name).read_text()))
            if isinstance(node, ast.ImportFrom) and node.module == "urllib.parse"
            for alias in node.names
        }
        assert imported <= {"unquote", "parse_qsl"}, name
