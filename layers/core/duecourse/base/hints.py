"""Hints in the error on a wrong text: the known name, duration or rate that is near to it."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import islice

WRONG_DURATION = "must be a duration such as 5m, PT5M or 300 (seconds)"
WRONG_RATE = "must be a rate such as 10/s, 600/m or 10/PT1S"
UNKNOWN = "is not a known field"
LIKE = 0.65
"""Least likeness at which a known name is suggested: `priority` for `prio`."""
COMPARED = 500
"""Maximum number of names that are compared with a wrong one: a comparison takes some 30 microseconds."""
LOOKED_AT = 10_000
"""Maximum number of names among which those are chosen."""
MAX_NAME = 64
"""Maximum length of a misspelt name: a comparison takes time by the square of the length."""
WORDS = {
    "y": "y year years",
    "mo": "mo mon month months",
    "w": "w wk wks week weeks",
    "d": "d day days",
    "h": "h hr hrs hour hours",
    "m": "m min mins minute minutes",
    "s": "s sec secs second seconds",
    "ms": "ms msec msecs milli millis millisecond milliseconds",
}
"""Words of each unit."""
UNIT = {word: unit for unit, words in WORDS.items() for word in words.split()}
CALENDAR = {"y": ("year", 365), "mo": ("month", 30)}
"""Units without a fixed length, and the days that are advised for one."""
LARGEST_FIRST = " w d h m s ms "
SHORT_OF_A_WEEK = ("d", "h", "m", "s", "ms")
_N = r"(\d{1,9})"
_TIME = r"T(?=\d)(?:\d{1,9}H)?(?:\d{1,9}M)?(?:\d{1,9}(?:[.,]\d{1,9})?S)?"


def unknown_field(name: object, known: Iterable[str]) -> str:
    """Error on a field that is not known, with the near one."""
    return UNKNOWN + near_name(name, known)


def near_name(word: object, known: Iterable[str]) -> str:
    """Ending of an error on an unknown name: `: priority?`, or "" if no known name is near."""
    near = nearest(word, known) if isinstance(word, str) else ""
    return f": {near}?" if near else ""


def nearest(word: str, known: Iterable[str], like: float = LIKE) -> str:
    """The known name that is most like this one, "" for none."""
    return next(iter(alike(word, known, like)), "")


def alike(word: str, known: Iterable[str], like: float = LIKE) -> list[str]:
    """Every known name that is like this one in any case of letters, the likest first."""
    if not 0 < len(word) <= MAX_NAME:
        return []
    from difflib import get_close_matches  # for wrong names alone: a cold start does without

    spelled = {name.lower(): name for name in _likely(word, known)}
    return [spelled[name] for name in get_close_matches(word.lower(), spelled, len(spelled) or 1, like)]


def _likely(word: str, known: Iterable[str]) -> list[str]:
    """Known names that are worth a comparison: all of few; of many those that begin or end most like it."""
    names = list(islice(known, LOOKED_AT))
    if len(names) <= COMPARED:
        return names
    return list(dict.fromkeys([*_beside(word, names, str.lower), *_beside(word, names, _backwards)]))


def _beside(word: str, names: list[str], spelling: Callable[[str], str]) -> list[str]:
    """Half of those to be compared: the names next to this one in the order of their spelling."""
    names = sorted(names, key=spelling)
    at = bisect_left(names, spelling(word), key=spelling)
    return names[max(0, at - COMPARED // 4) : at + COMPARED // 4]


def _backwards(name: str) -> str:
    return name.lower()[::-1]


def wrong_duration(text: str) -> str:
    """Error on a text that is no duration, with the right form of a near one."""
    word = text.strip()
    days, calendar = _days_of_iso(word.upper()) or _days_of_words(word) or ("", "")
    if days:
        return f"must be a duration: a {calendar} has no fixed length: write {days}"
    near = _iso(word.upper()) or _amounts(word)
    return f"{WRONG_DURATION}: write {near}" if near and near != text else WRONG_DURATION


def wrong_rate(text: str) -> str:
    """Error on a text that is no rate, with the right form of a near one."""
    parts = re.fullmatch(r"\s*([0-9]{1,9})\s*(?:/|per\b)\s*([A-Za-z]+)\s*", text)
    unit = _unit(parts[2]) if parts else ""
    return f"{WRONG_RATE}: write {parts[1]}/{unit}" if parts and unit in SHORT_OF_A_WEEK else WRONG_RATE


def _unit(word: str) -> str:
    """Unit of a word, or ""; a capital M may be a month or a minute."""
    return "" if word == "M" else UNIT.get(word.lower(), "")


def _days_of_iso(text: str) -> tuple[str, str] | None:
    """ISO 8601 with days for its years and months, and the larger of these two."""
    found = re.fullmatch(rf"P(?=\d)(?:{_N}Y)?(?:{_N}M)?(?:{_N}W)?(?:{_N}D)?({_TIME})?", text, re.ASCII)
    if not found or not (found[1] or found[2]):
        return None
    years, months, weeks, days = (int(found[place] or 0) for place in range(1, 5))
    total = 365 * years + 30 * months + 7 * weeks + days
    return f"P{total}D{found[5] or ''}", "year" if found[1] else "month"


def _days_of_words(text: str) -> tuple[str, str] | None:
    found = re.fullmatch(rf"{_N}\s*([A-Za-z]+)", text, re.ASCII)
    unit = _unit(found[2]) if found else ""
    if not found or unit not in CALENDAR:
        return None
    word, days = CALENDAR[unit]
    return f"{int(found[1]) * days}d", word


def _iso(text: str) -> str:
    return text if re.fullmatch(rf"P(?=[\dT])({_N}W)?({_N}D)?({_TIME})?", text, re.ASCII) else ""


def _amounts(text: str) -> str:
    """Amounts with the units that their words mean, or seconds; "" if that is not certain."""
    close = re.sub(r"(?<=[0-9])\s+(?=[A-Za-z])|(?<=[A-Za-z])(\s+and\s+|\s+)(?=[0-9])", "", text.removeprefix("+"))
    parts = re.findall(r"([0-9.,]+)([A-Za-z]*)", close)
    units = [_unit(word) for _, word in parts]
    order = [LARGEST_FIRST.find(f" {unit} ") for unit in units]
    amounts = [_decimal(amount) for amount, _ in parts]
    is_certain = parts and "".join(map("".join, parts)) == close and all(amounts) and sorted(set(order)) == order
    if not is_certain or (-1 in order and any(word for _, word in parts)):
        return ""
    return "".join(f"{amount}{unit}" for amount, unit in zip(amounts, units, strict=True))


def _decimal(amount: str) -> str:
    """A number such as .5 or 5. in full, or ""; a comma before three digits may part thousands."""
    found = re.fullmatch(r"([0-9]{0,9})(?:[.,]([0-9]{0,9}))?", amount)
    if not found or not (found[1] or found[2]) or re.search(r",[0-9]{3}$", amount):
        return ""
    return f"{found[1] or 0}.{found[2]}" if found[2] else found[1]
