"""Reminders written out: a subject of one line, a text and HTML, for each recipient and channel."""

import html
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import tzinfo
from functools import lru_cache
from types import TracebackType
from typing import Any

from jinja2 import Environment, Template
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import TemplateError, TemplateSyntaxError
from jinja2.nodes import Node

from duecourse.base.cpu_turns import Computation, OutOfTime, Turns
from duecourse.base.times import moment, span
from duecourse.errors import FieldError, InvalidInput
from duecourse.ledger.reminder import Channel
from duecourse.reminders import send
from duecourse.reminders.send import Letter, Message
from duecourse.reminders.template_language import (
    MAX_TEXT,
    TOO_LATE,
    Rejected,
    Sandbox,
    check_names,
    checked,
    in_time,
    metered,
)
from duecourse.schedules import wall_time

# One template rendered: compiled once, bounded in work, size and time, its errors with their line.

FILE = "<template>"
KEPT = 64
"""Number of compiled templates that are kept."""
FAULTS = (
    TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError,
    AssertionError,
)  # fmt: skip
"""Errors by which a template's own fault shows while it is rendered.

AssertionError is Jinja2's answer to a wrong argument of `truncate`.
"""


class BrokenTemplate(Exception):
    """A template cannot be rendered: at a line, for a reason."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")


class Renderer:
    """Renders templates; safe for threads."""

    def __init__(self) -> None:
        self._compiled = lru_cache(KEPT)(self._compile)
        self._sandboxes = {html: Sandbox(html=html) for html in (False, True)}

    def render(self, text: str, names: Mapping[str, Any], computation: Computation, *, html: bool = False) -> str:
        """A template's text with `names` in it; reading it is part of the computation. Raises BrokenTemplate."""
        with metered(computation):
            try:
                return _collect(self._compiled(text, frozenset(names), html), names)
            except FAULTS as error:
                raise BrokenTemplate(_line(error.__traceback__), _message(error)) from error

    def _compile(self, text: str, names: frozenset[str], html: bool) -> Template:
        sandbox = self._sandboxes[html]
        try:
            tree = checked(sandbox, text)
            generator = _Generator(sandbox)
            generator.visit(tree)
            check_names(tree, frozenset(generator.undeclared), names)
            in_time()
            code = compile(generator.stream.getvalue(), FILE, "exec")  # type: ignore[attr-defined]
        except TemplateSyntaxError as error:
            raise BrokenTemplate(error.lineno, str(error.message)) from error
        except (SyntaxError, RecursionError, MemoryError, OverflowError, ValueError) as error:
            raise BrokenTemplate(1, "it nests too deep, or holds too large a number") from error
        return Template.from_code(sandbox, code, dict(sandbox.globals))


class _Generator(CodeGenerator):
    """Jinja2's writer of Python, which notes the names that a template does not set itself."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment, None, FILE, optimized=False)
        self.undeclared: set[str] = set()

    def visit(self, node: Node, *args: Any, **kwargs: Any) -> Any:
        in_time()
        return super().visit(node, *args, **kwargs)

    def enter_frame(self, frame: Frame) -> None:
        super().enter_frame(frame)
        self.undeclared |= {name for _, (action, name) in frame.symbols.loads.items() if action == "resolve" and name}


def _collect(template: Template, names: Mapping[str, Any]) -> str:
    pieces, length = [], 0
    for piece in template.generate(names):
        length += len(piece)
        if length > MAX_TEXT:
            raise Rejected(f"more than {MAX_TEXT:,} characters in all")
        pieces.append(piece)
    text = "".join(pieces)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Rejected("an unpaired surrogate, which no message can carry") from None
    return text


def _line(trace: TracebackType | None) -> int:
    """The template's line that an error came from: Jinja2 puts it into the traceback."""
    line = 1
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _message(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return f"it nests deeper than {sys.getrecursionlimit()} levels"
    return (str(error) or type(error).__name__)[:300]


# The text of an HTML page, for those whose mail shows none: in one pass, whatever the page is like.

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


# Reminders written out: a subject of one line, a text and HTML, as each recipient and channel takes them.

MESSAGE_S = 0.3
"""Seconds of the processor to write one message, its templates' parsing and compilation among them."""
WITHIN_S = 5.0
"""Seconds of the processor to write all the messages of one reminder."""
MAX_SUBJECT = 200
LETTER = "Hello{% if recipient.name %} {{ recipient.name }}{% endif %},\n\n{{ subject }} begins at {{ starts_at }}.\n"
"""Default text of an e-mail without message and HTML; other channels get its last line."""
LINE = "{{ subject }} begins at {{ starts_at }}."

# A line break in a header would begin a header of somebody else's making.
_BREAKS = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+")


class TemplateWriter:
    """A Writer by Jinja2."""

    def __init__(self, turns: Turns | None = None) -> None:
        self._renderer = Renderer()
        self._turns = turns or Turns()

    def write(self, letters: Iterable[Letter]) -> list[Message]:
        """Each letter as its recipient reads it. Raises InvalidInput: field, line and fix."""
        written, left_s = [], WITHIN_S
        for letter in letters:
            with self._turns.computing(letter.tenant, min(MESSAGE_S, left_s)) as computation:
                written.append(_Draft(self._renderer, letter, computation).message())
                left_s -= computation.used_s
        return written


def template_names(letter: Letter, zone: tzinfo) -> dict[str, Any]:
    """Names that a reminder's templates can use, besides `subject`."""
    payload, recipient = letter.payload, letter.payload["recipient"]
    return {
        "id": payload["reminder"],
        "recipient": {name: recipient[name] for name in ("name", "channel", "address")},
        "starts_at": moment(letter.starts_at, zone),
        "lead": span(payload["lead_ms"]),
        "lead_seconds": payload["lead_ms"] // 1000,
        "data": payload["data"],
    }


class _Draft:
    """One message as it is written, with what is wrong with it."""

    def __init__(self, renderer: Renderer, letter: Letter, computation: Computation) -> None:
        self._renderer = renderer
        self._payload: Mapping[str, Any] = letter.payload
        self._recipient = letter.payload["recipient"]
        self._names = template_names(letter, wall_time.zone(self._recipient["time_zone"]))
        self._computation = computation
        self._problems: list[FieldError] = []

    def message(self) -> Message:
        """The message. Raises InvalidInput."""
        subject = self._field("subject", self._subject)
        self._names["subject"] = subject
        html = self._field("html", self._html)
        text = self._field("message", lambda: self._text(html))
        if self._problems:
            raise InvalidInput(self._problems)
        mail = self._recipient["channel"] == Channel.EMAIL
        return Message(self._recipient["address"], subject, text + "\n" * mail, html)

    def _field(self, name: str, write: Callable[[], str]) -> str:
        try:
            return write()
        except BrokenTemplate as error:
            self._problems.append(FieldError(name, str(error)))
            return ""

    def _subject(self) -> str:
        subject = _BREAKS.sub(" ", self._render(self._payload["subject"])).strip()
        if not 0 < len(subject) <= MAX_SUBJECT:
            raise BrokenTemplate(1, f"it comes to {len(subject)} characters: 1 to {MAX_SUBJECT} make a subject")
        return subject

    def _html(self) -> str:
        return self._render(self._payload["html"], html=True) if self._payload["html"] else ""

    def _text(self, html: str) -> str:
        text = self._message_text(html).strip()
        if self._recipient["channel"] == Channel.PHONE and not 0 < len(text) <= send.MAX_LENGTH:
            raise BrokenTemplate(1, f"it comes to {len(text)} characters: an SMS has 1 to {send.MAX_LENGTH:,}")
        return text

    def _message_text(self, html: str) -> str:
        if self._payload["message"]:
            return self._render(self._payload["message"])
        if html:
            return self._text_of(html)
        return self._render(LETTER if self._recipient["channel"] == Channel.EMAIL else LINE)

    def _text_of(self, html: str) -> str:
        try:
            return text_of(html, self._computation.look)
        except OutOfTime as error:
            raise BrokenTemplate(1, f"{TOO_LATE}: {error}") from None

    def _render(self, template: str, *, html: bool = False) -> str:
        return self._renderer.render(template, self._names, self._computation, html=html)
