"""Requests of a browser: where the page lies for it, and what it may not ask for."""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from starlette.requests import Request

SAFE = ("GET", "HEAD")
HEADER = "x-duecourse-page"
"""Header of each request of the front end that may change something: no form of another page can send it."""
OTHER_SITES = ("cross-site", "same-site")
"""Values of Sec-Fetch-Site for a page of another name, and for one at another port of this name."""
PREVIEWS = ("/schedules/preview", "/reminders/preview")
"""Routes of POST that change nothing."""
DRY_RUNS = re.compile(r"/queues/[^/]+/(dead/replay|purge|cancel)|/schedules/purge")
"""Routes of POST that change nothing with `dry_run`."""


class Location(NamedTuple):
    """Place of a request: the path of the page in the browser's address, and the encoded path below it."""

    base: str
    path: str


class Rejected(NamedTuple):
    """Rejection by the page itself, before the API: the status, and the last word of the problem's type."""

    status: int
    code: str
    title: str
    detail: str


def normal_base(base: str) -> str:
    """A base as `/ops`, "" for the root."""
    return f"/{base.strip('/')}" if base.strip("/") else ""


def locate(scope: Mapping[str, Any], base: str) -> Location:
    """Place of a request below `base`, or below the ASGI root path where no base is given."""
    root, path = normal_base(scope.get("root_path", "")), scope["path"]
    cut = _mount(root, path)
    rest = path[len(cut) :]
    if base and not cut.endswith(base) and _is_below(rest, base):
        cut += base  # a server that hands paths on whole, and names no root path
    return Location(base or root, _encoded(scope, cut.count("/")) or "/")


def _mount(root: str, path: str) -> str:
    """The part of the root path with which the path begins: a proxy may have taken off the parts before it."""
    parts = root.split("/")[1:]
    ends = ("".join(f"/{one}" for one in parts[start:]) for start in range(len(parts)))
    return next((end for end in ends if _is_below(path, end)), "")


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")


def _encoded(scope: Mapping[str, Any], segments: int) -> str:
    """The path as it was sent, without so many segments: an id with a slash is one segment."""
    sent = (scope.get("raw_path") or b"").decode("latin-1").partition("?")[0]
    # Some servers name no raw path, or one that a proxy's prefix is still in.
    whole = sent if unquote(sent) == scope["path"] else quote(scope["path"])
    return "".join(f"/{one}" for one in whole.split("/")[segments + 1 :])


def wrong_host(request: Request, hosts: frozenset[str] | None) -> Rejected | None:
    """Rejection of a request by the name of its host; `hosts` are those to accept, None for any."""
    given = request.headers.getlist("host")
    if len(given) == 1 and (hosts is None or given[0].lower() in hosts):
        return None
    listed = ", ".join(sorted(hosts or ())) or "one name"
    return Rejected(
        421,
        "page-host",
        "The page answers to its own address only.",
        f"The header Host must be {listed}, and is {', '.join(given)[:100] or 'missing'}.",
    )


def foreign(request: Request) -> Rejected | None:
    """Rejection of a request to the API that another page than this one makes, or may have made."""
    sites, origins = (request.headers.getlist(name) for name in ("sec-fetch-site", "origin"))
    host = request.headers["host"].lower()
    own = {f"{scheme}://{host}" for scheme in ("http", "https")}
    is_safe = request.method in SAFE
    if any(site.lower() in OTHER_SITES for site in sites) or any(one.lower() not in own for one in origins):
        named = ", ".join([*origins, *sites])[:100]
        detail = f"The request comes from another page ({named}) than this one ({host}). A proxy must pass on Host."
    elif not is_safe and len(origins) != 1:
        detail = "A request that changes something must have one header Origin."
    elif not is_safe and request.headers.get(HEADER) != "1":
        detail = "A request that changes something must have the header X-Duecourse-Page: 1."
    else:
        return None
    return Rejected(403, "page-origin", "The page takes requests of its own only.", detail)


def is_reading(method: str, path: str, body: bytes) -> bool:
    """True if a request to the API changes nothing."""
    if method in SAFE:
        return True
    return method == "POST" and (path in PREVIEWS or (bool(DRY_RUNS.fullmatch(path)) and _is_dry_run(body)))


def _is_dry_run(body: bytes) -> bool:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("dry_run") is True
