"""Protocols of bells: how a bridge hears them, reads their times and proves its subscription."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from threading import Event
from typing import NamedTuple, Protocol

# A bell is named by its key. Instants are the server's, in epoch milliseconds. Every verb raises StoreUnavailable where
# the server does not answer, and NotPrimary where it is a replica.


class BellEvent(StrEnum):
    """Events of a bell: it expired, the server evicted it, or it was re-hung or taken down."""

    EXPIRED = "expired"
    EVICTED = "evicted"
    HEAD = "head"


class BellMessage(NamedTuple):
    """One thing heard of one bell; of a head, `at` is when the bell will go, 0 where it was taken down."""

    what: BellEvent
    bell: str
    at: int = 0


class KeyExpiry(NamedTuple):
    """A watched key expired; the message lay unread since `unread_since` (time.monotonic()) at the earliest."""

    key: bytes
    unread_since: float


class BellTimes(NamedTuple):
    """Bells as they hung: the server's time just before (with its fraction), and when each will go, None for gone."""

    now: float
    hung: list[int | None]


class Subscription(Protocol):
    """One confirmed subscription to every bell of the ledger, and to watched keys; for one thread."""

    def hear(self, timeout: float) -> BellMessage | KeyExpiry | None:
        """The next sound, or a watched key's expiry, or None after `timeout` seconds without one."""

    def covers(self, bells: Sequence[str]) -> bool:
        """True if the heads of all these bells can be heard."""

    def close(self) -> None:
        """End the subscription."""


class Bells(Protocol):
    """The bells of one ledger on one primary; for many threads."""

    @property
    def canary(self) -> str:
        """The name of this bridge's own bell, whose sounds prove that the subscription lives."""

    @property
    def events(self) -> bool:
        """True if key events are wanted; otherwise only heads are heard, and no flag is read or set."""

    @property
    def watches(self) -> bool:
        """True if keys of other programs are watched; only key events announce their expiry."""

    def channel(self, what: BellEvent) -> str:
        """Name of the channel of EXPIRED and EVICTED, as in rings."""

    def check_primary(self) -> None:
        """Return if the server is a primary, or does not say what it is."""

    def enable_events(self) -> str:
        """Turn on those notifications that are missing, and answer their flags. Raises EventsRejected."""

    def subscribe(self) -> Subscription:
        """A subscription that the server has confirmed."""

    def known(self) -> list[str] | None:
        """The bells here of shards that were ever added to, hung or not.

        None where they are registered on another server, which is away and has never answered.
        """

    def look(self, bells: Sequence[str]) -> BellTimes:
        """Times at which these bells expire. A bell whose time is over expires now, and is heard as EXPIRED."""

    def try_canary(self) -> bool:
        """Hang the canary, touch it once its time is over, then publish its HEAD.

        False if events are not wanted, or the server does not take the write: then only the HEAD can be heard.
        """

    def close(self) -> None:
        """Leave the server."""


class BellServers(Protocol):
    """The primaries that have the bells of one ledger: a cluster's differ from time to time."""

    @property
    def changed(self) -> Event:
        """Set where it seems that primaries, or what they have, are others now; for one reader, who clears it."""

    @property
    def watches(self) -> bool:
        """See Bells."""

    def channel(self, what: BellEvent) -> str:
        """See Bells."""

    def primaries(self) -> Mapping[str, Bells]:
        """The bells of each primary by its name, "" for the only one; another object asks for a new subscription."""

    def owner_of(self, bell: str) -> str:
        """Name of the primary that has a bell, as far as is known; "" for the only one, and where none has it."""

    def close(self) -> None:
        """Leave every server."""
