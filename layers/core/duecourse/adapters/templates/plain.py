"""The text of an HTML page, for those whose mail shows none: in one pass, whatever the page is like."""

import html
import re
from collections.abc import Callable, Iterator

HIDDEN = frozenset({"script", "style", "head", "title"})
BLOCKS = frozenset({"p", "div", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "table", "blockquote", "section", "hr"})
LINES = {"br": "\n", "/tr": "\n", "li": "\n- ", "/td": " ", "/th": " "}
LINKS = ("http://", "https://", "mailto:", "tel:")
_SPACE = re.compile(r"\s+")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_NAME = re.compile(r"/?[A-Za-z][A-Za-z0-9]*")
_HREF = re.compile(r"""\shref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_EMPTY = re.compile(r"\n{3,}")
# Sought in the page itself: in lower case a page may be longer, for İ becomes two characters.
_ENDS = {name: re.compile(f"</{name}[^>]*>?", re.IGNORECASE | re.ASCII) for name in HIDDEN}


def text_of(page: str, look: Callable[[], None] = lambda: None) -> str:
    """Text of a page: a line for each row, an empty one between blocks, a link's address after its words.

    `look` is called at each tag, and may raise to end the work.
    """
    said: list[str] = []
    link = ""
    for tag, text in _pieces(page):
        look()
        name = (_NAME.match(tag) or [""])[0].lower()
        if name == "/a" and link and link not in said[-1:]:
            said.append(f" ({link})")
        link = _target(tag) if name == "a" else "" if name == "/a" else link
        said.append("\n\n" if name.removeprefix("/") in BLOCKS else LINES.get(name, ""))
        # Line breaks of the source are spaces on the page.
        said.append(_SPACE.sub(" ", _unescaped(text)))
    lines = [_SPACE.sub(" ", line).strip() for line in "".join(said).split("\n")]
    return _EMPTY.sub("\n\n", "\n".join(lines)).strip()


def _pieces(page: str) -> Iterator[tuple[str, str]]:
    """Each tag (without its brackets, "" before the first), and the text up to the next; no place is read twice."""
    # html.parser reads a page of tags that never close again and again: minutes for 256 KiB.
    tag, at = "", 0
    while True:
        name = (_NAME.match(tag) or [""])[0].lower()
        if name in HIDDEN:
            end_tag = _ENDS[name].search(page, at)
            at = end_tag.end() if end_tag else len(page)
        begin = _TAG.search(page, at)
        yield tag, page[at : begin.start() if begin else None]
        if begin is None:
            return
        end = _after(page, "-->" if page.startswith("<!--", begin.start()) else ">", begin.start())
        tag, at = page[begin.end() : end - 1], end


def _after(page: str, what: str, start: int) -> int:
    """Position after the next `what`, else the end of the page."""
    found = page.find(what, start)
    return len(page) if found < 0 else found + len(what)


def _target(tag: str) -> str:
    found = _HREF.search(tag)
    address = _unescaped(next(filter(None, found.groups()), "")) if found else ""
    return address if address.startswith(LINKS) else ""


def _unescaped(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError:  # a character of more digits than Python reads as a number
        return text
