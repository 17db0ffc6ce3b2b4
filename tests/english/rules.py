"""The rules for texts that users read, each with a name and what breaks it."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

MAX_WORDS = 25
MAX_WORDS_IN_CODE = 30
"""A docstring has names and shapes to say, and readers who came for them."""
BARE = (
    "what|which|whether|how|who|whom|whose|why|where|by|above|below|for|from|in|into|on|of|with|without|within|as"
    "|until|till|since|else|than|towards?|at(?! (?:most|least)\\b)|(?:when|after|if)(?![^.:;]*,)"
)
"""Openings that leave a reader to guess the noun; a clause before a comma (When …, …) is none."""
PRONOUN = "it|its|they|their|them|he|she|his|her|theirs"
PHRASES = {
    "notification, answer, report or message": r"\b(?:told|tell(?:s|ing)? (?:of|what|who|how))\b",
    "a thing is, or exists": r"\b(?:stands?|stood|standing)\b",
    "say who owns or does it": r"\b(?:nobody's|somebody's|somebody else's|whoever|anybody's)\b",
    "is rejected, with the status": r"\brefus(?:e|es|ed|ing|al|als)\b",
    "due tasks are throttled, a lease is held by a worker": r"\b(?:holds? back|held back|holding back)\b",
    "completion notification": r"\bfollow-ups?\b",
    "thread pool, worker, environment, log streams, expire, unknown keys": (
        r"\b(?:crews?|clerks?|hire[sd]?|house|voices|surroundings|bury|buried|strangers?)\b"
    ),
    "trigger": r"\b(?:doors?|deeds?)\b",
    "completion; a task is done, cancelled or dead": r"\b(?:the end of a task|a task's end|tells of an end)\b",
    "say it without a double negative": (
        r"\b(?:not un(?!der|til|less)\w+|never (?:not|without)|(?:nothing|none|nobody) but)\b"
        r"|\bno\w* [^.;:,]{1,40} but (?:by|for|an?)\b"
    ),
    "say how long": r"\bfor as long as\b|\bas long as (?:there|it|that)\b",
    "an old-fashioned turn": (
        r"\b(?:anew|beforehand|hitherto|thereof|wherever|for want of|in want of|has yet to|have yet to|save that"
        r"|comes? of|came of|goes on|is to be|may stand|is under way)\b"
    ),
}
"""A hint, and the words that want it."""


class Rule(NamedTuple):
    """Its name as it is reported, and what of a text breaks it."""

    name: str
    breaches: Callable[[str], Iterator[str]]


def plain(text: str) -> str:
    """A text without markup: what stands in code is one word, a link is its words, a URL is one word."""
    text = re.sub(r"`[^`]*`", "CODE", " ".join(text.split()))
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\w+://[^\s)]*[^\s).,;:]", "URL", text.replace("**", ""))


def sentences(text: str) -> list[str]:
    """The sentences of a plain text."""
    return [
        each for each in re.split(r"(?<=[.!?])[)\"']*\s+(?=[\"'(]*(?:[A-Z0-9]|duecourse|\w+ - ))", text) if each.strip()
    ]


def words(sentence: str) -> int:
    """How many words a sentence has: what has a letter or a digit, between blanks."""
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def opens_bare(text: str) -> Iterator[str]:
    """A text that begins with an interrogative or a preposition."""
    if re.match(rf"(?:{BARE})\b(?!-)", text, re.IGNORECASE):
        yield text


def opens_with_pronoun(text: str) -> Iterator[str]:
    """A sentence that begins with a pronoun, whose noun is in another one."""
    yield from (each for each in sentences(text) if re.match(rf"(?:{PRONOUN})\b", each, re.IGNORECASE))


def longer_than(most: int) -> Callable[[str], Iterator[str]]:
    """Sentences of more words than a reader keeps in mind."""
    return lambda text: (each for each in sentences(text) if words(each) > most)


def holding(pattern: str) -> Callable[[str], Iterator[str]]:
    """What has a word or a phrase that is not ours to use."""
    return lambda text: (each for each in sentences(text) if re.search(pattern, each, re.IGNORECASE))


OPENING = Rule("begin with a noun or an imperative", opens_bare)
PRONOUNS = Rule("name the noun in place of the pronoun", opens_with_pronoun)
LENGTH = Rule(f"at most {MAX_WORDS} words a sentence", longer_than(MAX_WORDS))
LENGTH_IN_CODE = Rule(f"at most {MAX_WORDS_IN_CODE} words a sentence", longer_than(MAX_WORDS_IN_CODE))
CHOICE = tuple(Rule(hint, holding(pattern)) for hint, pattern in PHRASES.items())
DESCRIBING = (OPENING, PRONOUNS, LENGTH, *CHOICE)
"""For a text of its own: a description, an option's help, an error's message."""
TELLING = (PRONOUNS, LENGTH, *CHOICE)
"""For prose, and for part of a message, in which a sentence may begin with any word."""
NAMING = CHOICE
"""For what is in a table."""
CODING = (OPENING, LENGTH_IN_CODE, *CHOICE)
"""For a docstring, which those read who change the code."""
