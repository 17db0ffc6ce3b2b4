"""The policy of calls to the web: what is public, what an operator may list, and what is judged before a look-up."""

import pytest

from duecourse.base.host_addresses import literals
from duecourse.errors import InvalidSettings
from duecourse.guard.egress import IN_CLEAR, OWN_USE, PRIVATE, Egress, carries_credentials, is_public
from duecourse.settings import parse
from tests.support.template import template

PUBLIC = [
    "1.1.1.1", "8.8.8.8", "93.184.216.34", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.1",
    "191.255.255.255", "223.255.255.255", "2001:4860:4860::8888", "2606:2800:220:1::1", "2a00:1450::1",
    "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2620:4f:8000::1",
]  # fmt: skip
NOT_PUBLIC = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "169.254.1.1", "172.16.0.1",
    "172.31.255.255", "192.0.0.1", "192.0.0.8", "192.0.0.255", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1",
    "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::8.8.8.8", "::ffff:10.0.0.1", "::ffff:0:8.8.8.8", "64:ff9b::10.0.0.1", "64:ff9b:1::8.8.8.8",
    "100::1", "100:0:0:1::1", "2001::1", "2001:0:808:808::1", "2001:2::1", "2001:20::1", "2001:db8::1",
    "2002:808:808::1", "3fff::1", "4000::1", "5f00::1", "fc00::1", "fd00::1", "fe80::1", "fe80::1%eth0", "fec0::1",
    "ff02::1",
]  # fmt: skip
OWN = [
    "169.254.169.254", "169.254.170.2", "169.254.170.23", "fe80::1", "fd00:ec2::254", "fd00:ec2::23", "168.63.129.16",
    "100.100.100.200", "192.0.0.192", "fd20:ce::254", "fd00:42::42", "::ffff:168.63.129.16", "2002:a83f:8110::1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::169.254.169.254", "::169.254.169.254",
]  # fmt: skip
ALL = Egress.of("0.0.0.0/0, ::/0")


@pytest.mark.parametrize("address", PUBLIC)
def test_public_unicast_may_be_called(address: str) -> None:
    assert is_public(address)
    assert Egress().problem_at("any.example", address, 443) == ""


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_nothing_else_may_unless_it_is_listed(address: str) -> None:
    assert not is_public(address)
    assert Egress().problem_at("any.example", address, 443)


@pytest.mark.parametrize("address", OWN)
def test_what_is_for_the_machines_own_use_may_never_be(address: str) -> None:
    for egress in (Egress(), ALL, Egress.of("own.example")):
        assert egress.problem_at("own.example", address, 80) == OWN_USE


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3"])
@pytest.mark.parametrize("listed", ["10.0.0.0/8", "10.1.2.3", "10.1.2.3:80", "in.example", ".example", "IN.example:80"])
def test_an_exception_covers_an_address_in_each_form_that_leads_to_it(address: str, listed: str) -> None:
    assert Egress.of(listed).problem_at("In.Example.", address, 80) == ""


@pytest.mark.parametrize(
    "listed", ["11.0.0.0/8", "10.1.2.3:81", "in.example:8080", "n.example", ".in.example", "xin.example", "fd00::/8"]
)
def test_an_exception_covers_nothing_else(listed: str) -> None:
    assert Egress.of(listed).problem_at("in.example", "10.1.2.3", 80) == PRIVATE


@pytest.mark.parametrize(
    ("listed", "host", "address", "port"),
    [
        ("fd12::/16", "x", "fd12::1", 1),
        ("[fd12::/16]:8080", "x", "fd12::1", 8080),
        ("fd12::/16:8080", "x", "fd12::1", 8080),
        ("[fd12::1]:443", "x", "fd12::1", 443),
        ("fd12::1", "x", "fd12::1", 443),
        ("2002:a00::/24", "x", "2002:a00:1::1", 80),
        ("xn--bcher-kva.example", "b\u00fccher.example", "10.0.0.1", 80),
        ("a_b.example, c.example", "c.example", "10.0.0.1", 80),
    ],
)
def test_each_form_of_an_exception(listed: str, host: str, address: str, port: int) -> None:
    assert Egress.of(listed).problem_at(host, address, port) == ""
    assert Egress().problem_at(host, address, port) == PRIVATE


@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        ("10.0.0.1/8", "'10.0.0.1/8' is not a host, a .suffix, an address or a network"),
        ("10.0.0.0/33", "'10.0.0.0/33' is not"),
        ("a b", "'a b' is not"),
        ("http://a.example/", "'http://a.example/' is not"),
        ("*.example", "'*.example' is not"),
        ("b\u00fccher.example", "(a name that is not ASCII as xn--\u2026)"),
        ("a.example:8044300", "'a.example:8044300' has a port that is not between 1 and 65535"),
        ("a.example:00008044300", "'a.example:00008044300' has a port that is not between 1 and 65535"),
        ("a.example:0", "'a.example:0' has a port that is not between 1 and 65535"),
        ("10.0.0.0/8:99999999999", "has a port"),
        ("a.example:", "'a.example:' is not"),
        ("127.1", "'127.1' is not"),
        ("0x7f000001", "'0x7f000001' is not"),
        ("[::1", "'[::1' is not"),
        (".", "'.' is not"),
        ("/8", "'/8' is not"),
        ("10.0.0.0/8, 169.254.169.254", "'169.254.169.254' is for the machine's own use"),
        ("169.254.0.0/16", "'169.254.0.0/16' is for the machine's own use"),
        ("fd00:ec2::/32", "'fd00:ec2::/32' is for the machine's own use"),
        ("168.63.129.16:80", "'168.63.129.16:80' is for the machine's own use"),
        ("::ffff:10.0.0.0/104", "'::ffff:10.0.0.0/104' leads to IPv4"),
    ],
)
def test_a_wrong_exception_is_rejected_by_its_name_at_the_start(listed: str, problem: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        parse({"DUECOURSE_EGRESS_ALLOW": listed})
    (wrong,) = caught.value.problems
    assert wrong.field == "DUECOURSE_EGRESS_ALLOW"
    assert problem in wrong.problem


def test_a_deployment_lists_nothing_by_default() -> None:
    assert parse({}).egress_allow == ""
    assert template()["Parameters"]["EgressAllow"]["Default"] == ""


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("127.0.0.1", ["127.0.0.1"]),
        ("127.1", ["127.0.0.1"]),
        ("0x7f.1", ["127.0.0.1"]),
        ("017700000001", ["127.0.0.1"]),
        ("2130706433", ["127.0.0.1"]),
        ("127.0.0.1.", ["127.0.0.1"]),
        ("\u2460\u2461\u2466\u3002\u24ea.\uff10.\uff11", ["127.0.0.1"]),
        ("%31%32%37.0.0.1", ["127.0.0.1"]),
        ("::1", ["::1"]),
        ("fe80::1%25eth0", ["fe80::1"]),
        ("LocalHost.", ["127.0.0.1", "::1"]),
        ("a.localhost", ["127.0.0.1", "::1"]),
        ("256.1.1.1", []),
        ("1.2.3.4.5", []),
        ("4294967296", []),
        ("0xbeef.example", []),
        ("beef.example", []),
        ("v1.x:y", []),
        ("", []),
    ],
)
def test_a_host_that_is_an_address_is_known_as_one(host: str, found: list[str]) -> None:
    assert literals(host) == found


def test_localhost_may_be_named_where_either_of_its_addresses_is_listed() -> None:
    for listed in ("127.0.0.0/8", "::1", "localhost", "localhost:3000"):
        assert Egress.of(listed).problem_of("http://localhost:3000/", {}) == ""
    assert Egress.of("localhost:3001").problem_of("http://localhost:3000/", {}) == PRIVATE


@pytest.mark.parametrize(
    ("listed", "problem"),
    [("", IN_CLEAR), ("b.example", IN_CLEAR), ("a.example:81", IN_CLEAR), ("a.example", ""), ("10.0.0.0/8", "")],
)
def test_credentials_in_clear_are_judged_as_far_as_no_look_up_is_needed(listed: str, problem: str) -> None:
    assert Egress.of(listed).problem_of("http://a.example/", {"authorization": "x"}) == problem
    assert Egress.of(listed).problem_of("https://a.example/", {"authorization": "x"}) == ""


def test_an_address_that_is_not_listed_gets_no_credentials_in_clear() -> None:
    assert Egress.of("10.0.0.0/8").problem_of("http://8.8.8.8/", {"authorization": "x"}) == IN_CLEAR
    assert Egress.of("10.0.0.0/8").problem_of("http://10.1.1.1/", {"authorization": "x"}) == ""


@pytest.mark.parametrize("name", ["Authorization", "COOKIE", "X-Api-Key", "x-auth-token", "X-Amz-Security-Token"])
def test_headers_that_are_shown_masked_are_credentials(name: str) -> None:
    assert carries_credentials(["accept", name])


@pytest.mark.parametrize("name", ["Accept", "Idempotency-Key", "webhook-signature", "content-type", "user-agent"])
def test_others_are_none_and_those_of_ours_neither(name: str) -> None:
    assert not carries_credentials([name])
