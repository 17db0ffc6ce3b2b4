"""Watched keys: the patterns of their names, and the task that an expiry adds."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import NamedTuple

from duecourse.base.json_text import Json, dump_json
from duecourse.ledger.task import DEFAULT_QUEUE, Apart, NewTask

PART = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
MAX_KEY_BYTES = 1_024
"""Maximum length of a watched key's name: it goes into an invocation and into a payload."""
BY = "watch"


class ExpiredKey(NamedTuple):
    """One watched key that expired: its name, where and when that was heard (the server's epoch ms).

    `since` is the earliest that it can have happened: `heard_at`, but where its hearer was held up.
    """

    key: bytes
    channel: str
    since: int
    heard_at: int


class Pattern:
    """Pattern of key names: text with named parts in braces (`send_message-{user}-{type}`), `{{` and `}}` for braces.

    No part is empty. Each is as short as what follows it allows; the last one takes the rest. Raises ValueError.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._names, literals = _parse(text)
        self._literals = [literal.encode() for literal in literals]
        self.prefix = self._literals[0]

    def match(self, key: bytes) -> dict[str, bytes] | None:
        """The parts of a key's name; None if the name does not match. The time is linear in the key's length."""
        head, *middle = self._literals
        if not self._names:
            return {} if key == head else None
        if not key.startswith(head):
            return None
        *between, tail = middle
        at, parts = len(head), []
        for literal in between:
            end = key.find(literal, at + 1)
            if end < 0:
                return None
            parts.append(key[at:end])
            at = end + len(literal)
        end = len(key) - len(tail)
        if end <= at or not key.endswith(tail):
            return None
        return dict(zip(self._names, [*parts, key[at:end]], strict=True))


class Watchlist:
    """List of watched patterns, asked for every key that expires."""

    def __init__(self, patterns: Sequence[Pattern] = ()) -> None:
        self._patterns = tuple(patterns)
        self._prefixes = tuple(pattern.prefix for pattern in patterns)

    def __len__(self) -> int:
        return len(self._patterns)

    def has(self, key: bytes) -> bool:
        """True if a key is watched. A key with another beginning costs one comparison."""
        return key.startswith(self._prefixes) and any(p.match(key) is not None for p in self._patterns)


class Watch(NamedTuple):
    """Task that the expiry of a key matching `pattern` adds.

    A task of `kind` in `queue`, with `payload` and the name's parts; the same key within `window_ms` counts once.
    """

    pattern: Pattern
    kind: str
    payload: Mapping[str, Json] = {}
    window_ms: int = 1_000
    queue: str = DEFAULT_QUEUE

    def task(self, namespace: str, expired: ExpiredKey, parts: Mapping[str, bytes]) -> NewTask:
        """The expiry as a task, with its instant in the id: expiries within one window are one task."""
        seed = b"\0".join((namespace.encode(), self.pattern.text.encode(), expired.key))
        group = f"watch:{hashlib.sha256(seed).hexdigest()[:32]}"
        first, last = (_id(group, at) for at in (expired.since - self.window_ms, expired.heard_at + self.window_ms))
        key = {name: show(value) for name, value in parts.items()}
        payload = {**self.payload, "key": key, **self._body(key)}
        return NewTask(
            _id(group, expired.heard_at),
            self.kind,
            dump_json(payload),
            queue=self.queue,
            group=group,
            by=BY,
            apart=Apart(first, last),
        )

    def _body(self, key: Json) -> Mapping[str, Json]:
        """Body of a webhook, with the parts of the key: nothing else of its payload is sent."""
        body = self.payload.get("body") or {}
        return {"body": {**body, "key": key}} if self.kind == "webhook" and isinstance(body, dict) else {}


def show(name: bytes) -> str:
    r"""A key's name, or a part of it, as text; what is no UTF-8 as `\xff`."""
    return name.decode(errors="backslashreplace")


def _id(group: str, at: int) -> str:
    """Id of the task; ids sort in the order of their instants, until the year 2286."""
    return f"{group}:{max(at, 0):013d}"


def _parse(text: str) -> tuple[list[str], list[str]]:
    """The names of the parts, and the texts before, between and after them."""
    names, literals = list[str](), [""]
    try:
        pieces = list(Formatter().parse(text))
    except ValueError:
        raise ValueError("has an unpaired brace: write {{ or }} for the brace itself") from None
    for literal, name, form, conversion in pieces:
        literals[-1] += literal
        if name is None:
            continue
        if form or conversion or not PART.fullmatch(name):
            raise ValueError("must name its parts by letters, digits and _, as in send_message-{user}-{type}")
        names.append(name)
        literals.append("")
    _check(names, literals)
    return names, literals


def _check(names: Sequence[str], literals: Sequence[str]) -> None:
    if not literals[0]:
        raise ValueError("must begin with text: a pattern that begins with a part would be tried on every key")
    if not all(literals[1:-1]):
        raise ValueError("must have text between its parts, to show where one ends")
    if len(set(names)) < len(names):
        raise ValueError("names a part twice: give each part its own name")
