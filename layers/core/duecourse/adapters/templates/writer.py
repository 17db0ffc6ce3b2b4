"""Reminders written out: a subject of one line, a text and HTML, as each recipient and channel takes them."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import tzinfo
from typing import Any

from duecourse.adapters.calendar import zones
from duecourse.adapters.templates.meter import TOO_LATE
from duecourse.adapters.templates.plain import text_of
from duecourse.adapters.templates.renderer import BrokenTemplate, Renderer
from duecourse.domain import sms
from duecourse.domain.reminder import Channel
from duecourse.domain.spoken import moment, span
from duecourse.errors import FieldError, InvalidInput
from duecourse.ports.sender import Message
from duecourse.ports.writer import Letter
from duecourse.turns import Computation, OutOfTime, Turns

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


def at_hand(letter: Letter, zone: tzinfo) -> dict[str, Any]:
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
        self._names = at_hand(letter, zones.zone(self._recipient["time_zone"]))
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
        text = self._said(html).strip()
        if self._recipient["channel"] == Channel.PHONE and not 0 < len(text) <= sms.MAX_LENGTH:
            raise BrokenTemplate(1, f"it comes to {len(text)} characters: an SMS has 1 to {sms.MAX_LENGTH:,}")
        return text

    def _said(self, html: str) -> str:
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
