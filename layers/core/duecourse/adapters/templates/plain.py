"""The text of an HTML page, for those whose mail shows none."""

import re
from html.parser import HTMLParser

HIDDEN = frozenset({"script", "style", "head", "title"})
BLOCKS = frozenset({"p", "div", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "table", "blockquote", "section", "hr"})
LINES = frozenset({"br", "tr", "li"})
_SPACE = re.compile(r"\s+")


def text_of(html: str) -> str:
    """What a page says: a line a row, an empty one between blocks, a link's address after its words."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    lines = [_SPACE.sub(" ", line).strip() for line in "".join(reader.pieces).split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Reader(HTMLParser):
    """Gathers what is shown, in pieces."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._hidden = 0
        self._links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in HIDDEN
        if tag == "a":
            self._links.append(dict(attrs).get("href") or "")
        self.pieces.append("\n\n" if tag in BLOCKS else "\n" if tag in LINES else "")
        self.pieces.append("- " if tag == "li" else "")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(self._hidden - (tag in HIDDEN), 0)
        if tag == "a" and self._links:
            self._point_to(self._links.pop())
        self.pieces.append("\n\n" if tag in BLOCKS else "")
        self.pieces.append(" " if tag in {"td", "th"} else "")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            # Line breaks of the source are spaces on the page.
            self.pieces.append(_SPACE.sub(" ", data))

    def _point_to(self, address: str) -> None:
        said = "".join(self.pieces[-2:])
        if address.startswith(("http://", "https://", "mailto:", "tel:")) and address not in said:
            self.pieces.append(f" ({address})")
