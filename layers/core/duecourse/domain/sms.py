"""How long an SMS may be, and how many parts it is sent (and paid) as."""

MAX_LENGTH = 1_600
"""The most characters that SNS takes."""

# GSM 03.38: its 7-bit alphabet, and what takes two of its places.
_GSM = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿"
    "abcdefghijklmnopqrstuvwxyzäöñüà"
)
_GSM_TWO = frozenset("^{}\\[~]|€")


def parts_of(text: str) -> int:
    """How many messages `text` is: 160 GSM characters in one or 153 in each of several, 70 and 67 with any other."""
    if _GSM.union(_GSM_TWO).issuperset(text):
        length, alone, each = len(text) + sum(character in _GSM_TWO for character in text), 160, 153
    else:
        length, alone, each = len(text.encode("utf-16-le")) // 2, 70, 67
    return 1 if length <= alone else -(-length // each)
