"""Numbers that SMS may go to, by phonenumbers, which has the number plans of all countries."""

from collections.abc import Collection

import phonenumbers
from phonenumbers import NumberParseException, PhoneNumber, PhoneNumberType

PREMIUM = "is a premium-rate number, to which no SMS is sent"
UNKNOWN = "is no phone number of any country"


class Numbers:
    """Rule of the numbers that SMS may go to: of these countries (ISO 3166, two letters), or of all if none is given.

    A number whose callers pay its owner is never one of them.
    """

    def __init__(self, countries: Collection[str]) -> None:
        self._countries = frozenset(countries)

    def problem_of(self, number: str) -> str:
        """Reason why no SMS may go to a number in E.164 form, or ""."""
        try:
            parsed = phonenumbers.parse(number)
        except NumberParseException:
            return UNKNOWN
        if phonenumbers.number_type(parsed) == PhoneNumberType.PREMIUM_RATE:
            return PREMIUM
        country = _country(parsed)
        if self._countries and country not in self._countries:
            allowed = ", ".join(sorted(self._countries))
            return f"is a number of {country or 'no known country'}: DUECOURSE_SMS_COUNTRIES allows {allowed}"
        return ""


def _country(number: PhoneNumber) -> str:
    """Country of a number, by its own range or by a calling code that one country has alone; "" if unknown."""
    found = phonenumbers.region_code_for_number(number)
    sharing = phonenumbers.region_codes_for_country_code(number.country_code or 0)
    return found or (sharing[0] if len(sharing) == 1 else "")
