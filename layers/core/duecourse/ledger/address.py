"""A store's URL: its forms, and the servers that it names."""

import re
from collections.abc import Callable
from ipaddress import IPv6Address
from typing import NamedTuple
from unicodedata import normalize
from urllib.parse import parse_qsl

HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[^\s/?#@,:\[\]]+)(?::\d+)?"
LOGIN = r"(?:[^\s/?#]*@)?"
ESCAPED = "in a password / is %2F, ? is %3F, # is %23, [ is %5B, ] is %5D"
DB = {"db": r"\d+"}
TLS = {
    **dict.fromkeys(("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"), ".+"),
    "ssl_cert_reqs": "required|optional|none",
    "ssl_check_hostname": "(?i)true|false",
}
MAX_PORT = 65_535
PLACE = re.compile(
    r"(localhost|(?=[^:/]*\.|.*:[0-9])[A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[0-9]{0,4})?"
)
"""A server as people write it without a scheme: `localhost:6379`, `redis.example.com/0`."""


class UrlForm(NamedTuple):
    """Form of a scheme's URLs: a pattern without options, the same for a reader, and the options' patterns."""

    pattern: str
    shown: str
    options: dict[str, str]


SERVER = UrlForm(rf"{LOGIN}{HOST}(/\d*)?", "[<user>:<password>@]<host>[:<port>][/<db>]", DB)
CLUSTER = UrlForm(
    rf"{LOGIN}{HOST}(,{HOST})*(/0?)?", "<host>:<port>[,<host>:<port>…]: a cluster has one database, 0", {}
)
URL_FORMS = {
    "redis": SERVER,
    "rediss": SERVER._replace(options=DB | TLS),
    "unix": UrlForm(rf"{LOGIN}/.+", "[<user>:<password>@]/<path>[?db=<db>]", DB),
    "redis-cluster": CLUSTER,
    "rediss-cluster": CLUSTER._replace(options=TLS),
    "redis+sentinel": UrlForm(
        rf"{LOGIN}{HOST}(,{HOST})*/[^/]+(/\d+)?/?", "<host>:<port>[,<host>:<port>…]/<service>[/<db>]", {}
    ),
    "leveldb": UrlForm("/.*", "/<folder>, by its absolute path: leveldb:///var/lib/duecourse", {}),
    "memory": UrlForm("", "", {}),
}

REDIS_PORT, SENTINEL_PORT = 6379, 26379
PORTS = {
    **dict.fromkeys(("redis", "rediss", "redis-cluster", "rediss-cluster"), REDIS_PORT),
    "redis+sentinel": SENTINEL_PORT,
    "amqp": 5672,
    "amqps": 5671,
}
"""Port of a URL's servers where none is written, by scheme; a scheme that is not here names no server."""
WITHOUT_BELLS = ("leveldb", "memory")
"""The forms of stores that no other program can reach: they ring within their process."""


class Address(NamedTuple):
    """A URL in its parts, each as it is written there: `scheme://[login@]hosts[/path][?query][#fragment]`.

    Split here, for Python's urlsplit knows no list of hosts, and what it makes of one that holds an IPv6 address
    differs between patch releases.
    """

    scheme: str
    login: str | None
    hosts: str
    path: str
    query: str

    @property
    def place(self) -> str:
        """The URL without login, options and fragment: fit for a log."""
        return f"{self.scheme}://{self.hosts}{self.path}"


def split(url: str) -> Address:
    """The parts of `url`, nothing in them checked."""
    scheme, _, rest = url.partition("#")[0].partition("://")
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    login, at, hosts = authority.rpartition("@")
    return Address(scheme, login if at else None, hosts, slash + path, query)


def nodes_of(url: str, default_port: int) -> list[tuple[str, int]]:
    """Host and port of each server in `scheme://[user@]host[:port][,host[:port]…]/…`, none for a URL without a host.

    Raises ValueError where a port is none, or an address in brackets.
    """
    return [_node(place, default_port) for place in split(url).hosts.split(",") if place]


def servers_of(url: str) -> list[tuple[str, int]]:
    """Host and port of each server that the right URL of a store or a broker names."""
    port = PORTS.get(split(url).scheme)
    return nodes_of(url, port) if port else []


def _node(place: str, default_port: int) -> tuple[str, int]:
    bracketed = re.fullmatch(r"\[(.*)\](?::(.*))?", place)
    host, port = bracketed.groups() if bracketed else (place.partition(":")[::2])
    if bracketed:
        IPv6Address(host)
    if not port:
        return host.lower(), default_port
    if not (port.isascii() and port.isdigit() and int(port) <= MAX_PORT):
        raise ValueError("no port")
    return host.lower(), int(port)


def check_servers(url: str) -> str:
    """`url`. Raises ValueError where a server in it has no right port or address: else each call would fail later.

    The same where its login would be read otherwise by the library that gets it.
    """
    try:
        right = all(port for _, port in nodes_of(url, 1))
    except ValueError:
        right = False
    if not right:
        raise ValueError(f"must have a port of at most {MAX_PORT}, and an IPv6 address in brackets ({ESCAPED})")
    # Libraries look for the brackets of an address before they look for the @ of a login, and fold letters first.
    parts = split(url)
    login = parts.login or ""
    if re.search(r"[\[\]]", login) or any(_folds(letter) for letter in login + parts.hosts):
        raise ValueError(f"must have its password written with escapes ({ESCAPED})")
    return url


def _folds(letter: str) -> bool:
    return not letter.isascii() and not set("/?#@:").isdisjoint(normalize("NFKC", letter))


def check_store(url: str) -> str:
    """`url`. Raises ValueError, with the form that it must have, and without any part of it."""
    scheme, _, rest = url.partition("://")
    form = URL_FORMS.get(scheme)
    if not form:
        raise ValueError(f"must begin with {', '.join(f'{name}://' for name in URL_FORMS)}")
    if scheme == "leveldb":
        place, query = rest, ""
    else:
        check_servers(url)
        place, _, query = rest.partition("?")
    if not re.fullmatch(form.pattern, place):
        raise ValueError(f"must be {scheme}://{form.shown}" + (f" ({ESCAPED})" if "<host>" in form.shown else ""))
    _check_options(form, query)
    return url


def near_url(url: str, scheme: str, path: str, check: Callable[[str], object]) -> str:
    """Ending of the error on a URL that a person gave: the text, without a login, and its form with a scheme.

    Empty where no such form passes `check`, or the text shows no host: it may be a password in the wrong place.
    """
    given, is_there, rest = url.rpartition("://")
    login = "<user>:<password>@" if "@" in rest else ""
    place = rest.rpartition("@")[2]
    if not PLACE.fullmatch(place) or (is_there and (given.lower() not in URL_FORMS or given in URL_FORMS)):
        return ""
    server, _, rest_path = place.partition("/")
    near = f"{given.lower() or scheme}://{login}{server}{'/' + rest_path if rest_path else path}"
    try:
        check(near)
    except ValueError:
        return ""
    return f", not {given}{is_there}{login}{place}: write {near}"


def _check_options(form: UrlForm, query: str) -> None:
    for name, value in parse_qsl(query, keep_blank_values=True):
        if not re.fullmatch(form.options.get(name, "(?!)"), value):
            known = ", ".join(form.options) or "none"
            raise ValueError(f"has an unknown option, or an option with a wrong value; known options: {known}")


def without_login(url: str) -> str:
    """`url` without user and password."""
    login = split(url).login
    return url if login is None else url.replace(f"{login}@", "", 1)
