"""The files of the front end, as they lie in the package, and pages of plain words."""

import re
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from urllib.parse import quote

from starlette.responses import HTMLResponse, Response

STATIC = Path(__file__).with_name("static")
# Not those of this machine: a registry of types may have another one for .mjs, which a browser then does not run.
TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".woff2": "font/woff2",
}
BASE = re.compile(r'<base href="[^"]*"\s*/?>')
NO_STORE = {"Cache-Control": "no-store"}
PLAIN = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">{head}
<title>duecourse: {title}</title><h1>{title}</h1><p>{text}</p></html>
"""


def index(base: str) -> Response:
    """The front end's document for the page at the path `base`."""
    address = escape(quote(f"{base}/"))
    text = BASE.sub(lambda _: f'<base href="{address}">', (STATIC / "index.html").read_text(), count=1)
    return HTMLResponse(text, headers=NO_STORE)


def static_file(name: str, known: str) -> Response | None:
    """A file below `static`, None where there is none; 304 if `known`, the header If-None-Match, has its tag."""
    path = (STATIC / name).resolve()
    if not path.is_relative_to(STATIC.resolve()) or path.suffix not in TYPES or not path.is_file():
        return None
    content, tag = _read(path, path.stat().st_mtime_ns)
    headers = {"ETag": tag, "Cache-Control": "no-cache"}  # kept, but asked for: an upgrade is seen at once
    if tag in {one.strip().removeprefix("W/") for one in known.split(",")}:
        return Response(None, 304, headers)
    return Response(content, 200, headers, TYPES[path.suffix])


@cache
def _read(path: Path, _changed_at: int) -> tuple[bytes, str]:
    content = path.read_bytes()
    return content, f'"{sha256(content).hexdigest()[:32]}"'


def plain_page(status: int, title: str, text: str, *, reloads: bool = False) -> Response:
    """A page of a few words; one that `reloads` opens its own address again, as a link of this site."""
    head = '<meta http-equiv="refresh" content="0">' if reloads else ""
    return HTMLResponse(PLAIN.format(head=head, title=escape(title), text=escape(text)), status, NO_STORE)
