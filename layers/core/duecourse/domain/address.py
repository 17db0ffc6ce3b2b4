"""A store's URL: the forms there are, the servers that it names, and how it is told to others."""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[^\s/?#@,:\[\]]+)(?::\d+)?"
LOGIN = r"(?:[^\s/?#]*@)?"
ESCAPED = "in a password / is %2F, ? is %3F, # is %23"
DB = {"db": r"\d+"}
TLS = {
    **dict.fromkeys(("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"), ".+"),
    "ssl_cert_reqs": "required|optional|none",
    "ssl_check_hostname": "(?i)true|false",
}


class Form(NamedTuple):
    """How the URLs of a scheme are written, without options; the same for a reader; the options, each a pattern."""

    pattern: str
    told: str
    options: dict[str, str]


SERVER = Form(rf"{LOGIN}{HOST}(/\d*)?", "[<user>:<password>@]<host>[:<port>][/<db>]", DB)
CLUSTER = Form(rf"{LOGIN}{HOST}(,{HOST})*(/0?)?", "<host>:<port>[,<host>:<port>…]: a cluster has one database, 0", {})
FORMS = {
    "redis": SERVER,
    "rediss": SERVER._replace(options=DB | TLS),
    "unix": Form(rf"{LOGIN}/.+", "[<user>:<password>@]/<path>[?db=<db>]", DB),
    "redis-cluster": CLUSTER,
    "rediss-cluster": CLUSTER._replace(options=TLS),
    "redis+sentinel": Form(
        rf"{LOGIN}{HOST}(,{HOST})*/[^/]+(/\d+)?/?", "<host>:<port>[,<host>:<port>…]/<service>[/<db>]", {}
    ),
    "leveldb": Form("/.*", "/<folder>, by its absolute path: leveldb:///var/lib/duecourse", {}),
    "memory": Form("", "", {}),
}


def nodes_of(url: str, default_port: int) -> list[tuple[str, int]]:
    """Host and port of each server in `scheme://[user@]host[:port][,host[:port]…]/…`, none for a URL without a host.

    Raises ValueError where a port is none.
    """
    hosts = urlsplit(url).netloc.rpartition("@")[2].split(",")
    nodes = [urlsplit(f"//{host}") for host in hosts]
    return [(node.hostname, default_port if node.port is None else node.port) for node in nodes if node.hostname]


def check_ports(url: str) -> str:
    """`url`. Raises ValueError where a port in it is none: else each call would fail with another's traceback."""
    try:
        right = all(port for _, port in nodes_of(url, 1))
    except ValueError:
        right = False
    if not right:
        raise ValueError(f"must have a number up to 65535 as its port ({ESCAPED})")
    return url


def check_store(url: str) -> str:
    """`url`. Raises ValueError, with what it must be, where no store's is written so; no part of it is told."""
    scheme, _, rest = url.partition("://")
    form = FORMS.get(scheme)
    if not form:
        raise ValueError(f"must begin with {', '.join(f'{name}://' for name in FORMS)}")
    if scheme == "leveldb":
        place, query = rest, ""
    else:
        check_ports(url)
        place, _, query = rest.partition("?")
    if not re.fullmatch(form.pattern, place):
        raise ValueError(f"must be {scheme}://{form.told}" + (f" ({ESCAPED})" if "<host>" in form.told else ""))
    _check_options(form, query)
    return url


def _check_options(form: Form, query: str) -> None:
    for name, value in parse_qsl(query, keep_blank_values=True):
        if not re.fullmatch(form.options.get(name, "(?!)"), value):
            known = ", ".join(form.options) or "none"
            raise ValueError(f"has an option that it cannot have, or a wrong value of one; there are: {known}")


def shown(url: str) -> str:
    """`url` without its password, for logs and messages."""
    login, at, _ = urlsplit(url).netloc.rpartition("@")
    user, colon, _ = login.partition(":")
    return url.replace(f"{login}{at}", f"{user}:***@", 1) if colon else url
