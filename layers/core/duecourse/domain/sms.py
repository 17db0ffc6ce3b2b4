"""Length of an SMS, and the number of parts in which it is sent and billed."""

from collections.abc import Iterable

MAX_LENGTH = 1_600
"""The most characters that SNS takes."""

# GSM 03.38: its 7-bit alphabet, and what takes two of its places.
_GSM = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿"
    "abcdefghijklmnopqrstuvwxyzäöñüà"
)
_GSM_TWO = frozenset("^{}\\[~]|€")


def parts_of(text: str) -> int:
    """Number of parts of `text`: 160 GSM characters in one or 153 in each of several, 70 and 67 with any other.

    A character of two places is not split between parts.
    """
    if _GSM.union(_GSM_TWO).issuperset(text):
        widths, alone, each = [1 + (character in _GSM_TWO) for character in text], 160, 153
    else:
        widths, alone, each = [1 + (character > "\uffff") for character in text], 70, 67
    return 1 if sum(widths) <= alone else _filled(widths, each)


def _filled(widths: Iterable[int], room: int) -> int:
    parts, left = 1, room
    for width in widths:
        if width > left:
            parts, left = parts + 1, room
        left -= width
    return parts
