"""Seals: the credentials of a task, encrypted beside the text that is shown.

One rule decides: a ledger keeps in clear what `masked` shows, and seals the rest. A payload's text with a seal begins
with SEALED and is `{"seal": …, "shown": …}`. The seal holds what is hidden, as a tree: `{"url": ["https://…"]}` is the
value of the field `url`, and a list has its items by their numbers. So no name is written twice, however many values
are below it.
A sealed address is `sealed:<seal>:<address as shown>`, one word that any code takes for an address.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from duecourse.domain.masking import MASK, SEALED_ADDRESS, is_suspect, masked_payload, masked_text
from duecourse.domain.task import MAX_DEPTH, SEALED, Json, deeper_than, dump_json
from duecourse.errors import MAX_FIELD

Tree: TypeAlias = Json
"""Hidden values at their places: an object of trees by name or number, or at a place of its own a list of the value."""
CUT = "…"
"""Mark at the end of an excerpt."""
LEAST = 6
"""Least length of a word that is taken for a secret: shorter ones are part of other words."""
_WORDS = re.compile(r"[^\s\"'\\,;:&?=@#(){}\[\]<>]+")


class Hidden(NamedTuple):
    """A payload as it is shown, and the values that this hides."""

    shown: Json
    values: Tree


class SealedText(NamedTuple):
    """A seal, and the text beside it."""

    seal: str
    shown: str


def hidden_in(text: str, kind: str = "", answer: str = "") -> Hidden | None:
    """The parts of a payload's text that a view of this kind hides; None for a payload without any.

    The field `answer`, if there is one, is kept as it is: an earlier result, and results are not sealed. A text that is
    no JSON, which another program wrote, is hidden as a whole.
    """
    if not is_suspect(text):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return Hidden(MASK, [text])
    return hidden_of(value, kind, answer)


def hidden_of(value: Json, kind: str = "", answer: str = "") -> Hidden | None:
    """The same of a decoded payload. One that nests too deep to be gone through is hidden as a whole."""
    if deeper_than(MAX_DEPTH, value):
        return Hidden(MASK, [value])
    shown = masked_payload(kind, value)
    if answer and answer in value:
        shown[answer] = value[answer]
    values = _differences(value, shown)
    return None if values is None else Hidden(shown, values)


def _differences(value: Json, shown: Json) -> Tree | None:
    if isinstance(value, dict) and isinstance(shown, dict):
        inside = {name: _differences(one, shown[name]) for name, one in value.items()}
    elif isinstance(value, list) and isinstance(shown, list):
        inside = {str(at): _differences(one, seen) for at, (one, seen) in enumerate(zip(value, shown, strict=True))}
    else:
        return None if value is shown or value == shown else [value]
    return {name: found for name, found in inside.items() if found is not None} or None


def restored(shown: Json, values: Tree) -> Json:
    """The payload with the hidden values in their places; `shown` is changed."""
    if isinstance(values, list):
        return values[0]
    for name, inside in values.items():
        at = int(name) if isinstance(shown, list) else name
        shown[at] = restored(shown[at], inside)
    return shown


def names(values: Tree, before: str) -> Iterator[str]:
    """Dotted name of each hidden value, cut where it is long."""
    if isinstance(values, list):
        yield before
    else:
        for name, inside in values.items():
            yield from names(inside, f"{before}.{name}"[:MAX_FIELD] if before else name[:MAX_FIELD])


def sealed_payload(seal: str, shown: Json) -> str:
    """A payload's text with a seal in it."""
    return SEALED + dump_json({"seal": seal, "shown": shown})


def read_payload(text: str) -> SealedText | None:
    """The seal in a payload's text, and the text of what is shown; None where the text has no seal.

    Raises ValueError, TypeError or LookupError for a damaged one.
    """
    if not text.startswith(SEALED):
        return None
    found = json.loads(text)
    return SealedText(found["seal"], dump_json(found["shown"]))


def hidden_in_address(url: str) -> str:
    """The address as it is shown, if that hides anything of it; else ""."""
    shown = masked_text(url)
    return shown if shown != url else ""


def sealed_address(seal: str, shown: str) -> str:
    """An address with a seal in it."""
    return f"sealed:{seal}:{shown}"


def read_address(text: str) -> SealedText | None:
    """The seal in an address, and what is shown of it; None for an address without a seal."""
    found = SEALED_ADDRESS.fullmatch(text) if text.startswith("sealed:") else None
    return SealedText(found[1], found[2]) if found else None


def secret_words(opened: str, kept: str) -> list[str]:
    """Words of an opened text that the ledger's text does not show, the longest first."""
    found = {word for word in _WORDS.findall(opened) if len(word) >= LEAST}
    return sorted(found.difference(_WORDS.findall(kept)), key=len, reverse=True)


def without(text: str, words: Sequence[str]) -> str:
    """The text with MASK in place of these words, and of the beginning of one where the text was cut."""
    for word in words:
        text = text.replace(word, MASK)
    in_order = sorted(words)
    return CUT.join(_without_beginning(part, in_order) for part in text.split(CUT)) if words else text


def _without_beginning(text: str, in_order: Sequence[str]) -> str:
    """The text with MASK in place of what it ends with, if a word begins so."""
    for size in range(min(len(text), len(max(in_order, key=len))), LEAST - 1, -1):
        end = text[-size:]
        place = bisect_left(in_order, end)
        if place < len(in_order) and in_order[place].startswith(end):
            return text[:-size] + MASK
    return text
