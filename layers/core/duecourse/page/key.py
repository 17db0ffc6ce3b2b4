"""The key of a page that a command serves: an address with it opens the page, and is exchanged for a cookie."""

from hmac import compare_digest
from secrets import token_urlsafe
from threading import Lock

COOKIE = "duecourse_page"


class PageKey:
    """Key and cookie of one start. Another user of the machine knows neither.

    The key may be used by several browsers. A key made by `once` is for a command line, where others may read it.
    """

    def __init__(self) -> None:
        self.text = token_urlsafe(32)
        self.cookie = token_urlsafe(32)
        self._once: list[str] = []
        self._using = Lock()

    def once(self) -> str:
        """A further key that opens the page a single time."""
        made = token_urlsafe(32)
        self._once.append(made)
        return made

    def opens(self, given: str) -> bool:
        """True for the key, and for one of `once` that nobody used before."""
        with self._using:
            spent = [one for one in self._once if _equal(one, given)]
            self._once = [one for one in self._once if one not in spent]
        return bool(spent) or _equal(self.text, given)

    def is_cookie(self, given: str) -> bool:
        """True for the cookie that the key was exchanged for."""
        return _equal(self.cookie, given)


def _equal(own: str, given: str) -> bool:
    # In constant time: how long it takes tells nothing about the characters that are right.
    return compare_digest(own.encode(), given.encode(errors="surrogatepass"))
