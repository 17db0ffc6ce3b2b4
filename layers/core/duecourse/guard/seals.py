"""Seals: credentials of a task are encrypted as it is added, and opened just before it is worked."""

import base64
import binascii
import json
import os
import re
import secrets
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from duecourse.base.json_text import MAX_DEPTH, Json, deeper_than, dump_json
from duecourse.base.masking import MASK, SEALED_ADDRESS, is_suspect, masked_payload, masked_text
from duecourse.errors import MAX_FIELD, FieldError, InvalidInput, SealBroken, SealUnavailable, bounded
from duecourse.ledger.api_query import KNOWN, QUEUE_PREFIX
from duecourse.ledger.operation_types import WrappedKey
from duecourse.ledger.task import SEALED, NewTask, Notify, Task, ended_of, is_notification, is_url

if TYPE_CHECKING:
    from duecourse.guard.cipher import AesGcm
    from duecourse.ledger.operations.namespace_records import SealKeys

# Seals: the credentials of a task, encrypted beside the text that is shown.
#
# One rule decides: a ledger keeps in clear what `masked` shows, and seals the rest. A payload's text with a seal begins
# with SEALED and is `{"seal": …, "shown": …}`. The seal holds what is hidden, as a tree: `{"url": ["https://…"]}` is
# the value of the field `url`, and a list has its items by their numbers. So no name is written twice, however many
# values are below it.
# A sealed address is `sealed:<seal>:<address as shown>`, one word that any code takes for an address.

HiddenValues: TypeAlias = Json
"""Hidden values at their places: an object of trees by name or number, or at a place of its own a list of the value."""
ELLIPSIS = "…"
"""Mark at the end of an excerpt."""
MIN_SECRET_LENGTH = 6
"""Least length of a word that is taken for a secret: shorter ones are part of other words."""
_WORDS = re.compile(r"[^\s\"'\\,;:&?=@#(){}\[\]<>]+")


class Hidden(NamedTuple):
    """A payload as it is shown, and the values that this hides."""

    shown: Json
    values: HiddenValues


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


def _differences(value: Json, shown: Json) -> HiddenValues | None:
    if isinstance(value, dict) and isinstance(shown, dict):
        inside = {name: _differences(one, shown[name]) for name, one in value.items()}
    elif isinstance(value, list) and isinstance(shown, list):
        inside = {str(at): _differences(one, seen) for at, (one, seen) in enumerate(zip(value, shown, strict=True))}
    else:
        return None if value is shown or value == shown else [value]
    return {name: found for name, found in inside.items() if found is not None} or None


def restore_hidden(shown: Json, values: HiddenValues) -> Json:
    """The payload with the hidden values in their places; `shown` is changed."""
    if isinstance(values, list):
        return values[0]
    for name, inside in values.items():
        at = int(name) if isinstance(shown, list) else name
        shown[at] = restore_hidden(shown[at], inside)
    return shown


def hidden_names(values: HiddenValues, before: str) -> Iterator[str]:
    """Dotted name of each hidden value, cut where it is long."""
    if isinstance(values, list):
        yield before
    else:
        for name, inside in values.items():
            yield from hidden_names(inside, f"{before}.{name}"[:MAX_FIELD] if before else name[:MAX_FIELD])


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
    found = {word for word in _WORDS.findall(opened) if len(word) >= MIN_SECRET_LENGTH}
    return sorted(found.difference(_WORDS.findall(kept)), key=len, reverse=True)


def strip_secrets(text: str, words: Sequence[str]) -> str:
    """The text with MASK in place of these words, and of the beginning of one where the text was cut."""
    for word in words:
        text = text.replace(word, MASK)
    in_order = sorted(words)
    return ELLIPSIS.join(_strip_prefix(part, in_order) for part in text.split(ELLIPSIS)) if words else text


def _strip_prefix(text: str, in_order: Sequence[str]) -> str:
    """The text with MASK in place of what it ends with, if a word begins so."""
    for size in range(min(len(text), len(max(in_order, key=len))), MIN_SECRET_LENGTH - 1, -1):
        end = text[-size:]
        place = bisect_left(in_order, end)
        if place < len(in_order) and in_order[place].startswith(end):
            return text[:-size] + MASK
    return text


# Sealing of the credentials in tasks as they are added, and opening just before a task is worked.

PAYLOAD, NOTIFY = "payload", "notify"
"""Fields that are sealed, each for itself."""
REJECTED = (
    "holds a credential, or a value that is shown as one, and no key to seal it is set here: "
    "name the credentials by `auth`, or set DUECOURSE_SEAL_KEY"
)
NO_KEY = "DUECOURSE_SEAL_KEY is not set here, so the sealed credentials of this task wait"
DAMAGED = "the sealed credentials of this task cannot be opened: they are damaged, or belong to another task"


class DataKey(NamedTuple):
    """A new data key: its 32 bytes, and the same as the wrapping key encrypted them."""

    plain: bytes
    wrapped: bytes


class Wrapping(Protocol):
    """The key that encrypts data keys.

    Its verbs raise SealUnavailable where it does not answer, and SealBroken for what it cannot have encrypted.
    """

    def new(self) -> DataKey:
        """A new data key."""

    def unwrap(self, wrapped: bytes) -> bytes:
        """The 32 bytes of a data key."""


class Owner(NamedTuple):
    """The task that a seal belongs to."""

    queue: str
    tenant: str
    id: str


class Seals:
    """Seals of one namespace; safe for threads.

    `wrapping` gives the key that is set, None where none is: credentials are then rejected. `cipher` makes the cipher
    of a data key.
    """

    def __init__(
        self,
        namespace: str,
        keys: Callable[[], "SealKeys"],
        wrapping: Callable[[], Wrapping] | None,
        cipher: Callable[[bytes], "AesGcm"],
    ) -> None:
        self.are_possible = wrapping is not None
        """True if a key is set."""
        self._namespace = namespace
        self._keys = keys
        self._wrapping = wrapping
        self._cipher = cipher
        self._open: dict[str, AesGcm] = {}
        self._sealing: WrappedKey | None = None
        self._process, self._lock = os.getpid(), threading.Lock()
        self._problem: SealUnavailable | None = None

    def check(self, field: str, value: Json, kind: str = "") -> None:
        """Return if this part of a request may be added. Raises InvalidInput, naming each credential without a key.

        A payload's `kind` says whether its `auth` is a name.
        """
        if self._wrapping is not None:
            return
        if hidden := hidden_of(value, kind):
            raise _rejection(field, hidden)

    def check_task(self, task: NewTask) -> None:
        """Reject a task with credentials, where no key is set. One in the address of its notification counts."""
        if not task.notify and not is_suspect(task.payload):
            return
        if hidden := _hidden_in(task):
            raise _rejection("payload", hidden)
        if _has_hidden_address(task):
            raise InvalidInput([FieldError("notify_done.url", REJECTED)])

    def hides(self, task: NewTask) -> bool:
        """True if a key is set, and the task has credentials."""
        return self.are_possible and _hides(task)

    def sealed(self, tasks: Sequence[NewTask]) -> Sequence[NewTask]:
        """The tasks as a ledger keeps them. Raises InvalidInput without a key, SealUnavailable and StoreUnavailable."""
        hiding = [_hides(task) for task in tasks]
        if not any(hiding):
            return tasks
        if self._wrapping is None:
            for task in tasks:
                self.check_task(task)
        current = self._keys().current() or self._make()
        cipher = self._current(current)
        self._sealing = current
        return [
            self._sealed(task, current.id, cipher) if hides else task for task, hides in zip(tasks, hiding, strict=True)
        ]

    def digest(self) -> Callable[[bytes], str]:
        """Hash, in hexadecimal, that nobody can make without the data key of now."""
        cipher = self._current(self._keys().current() or self._make())
        return lambda text: cipher.digest(text).hex()

    def opened(self, task: Task) -> Task:
        """The task as it was added. Raises SealBroken, SealUnavailable and StoreUnavailable."""
        if task.payload_json.startswith(SEALED):
            return replace(task, payload_json=self._opened_payload(task))
        ended = ended_of(task.payload) if is_notification(task.id) else None
        address = read_address(ended.url) if ended else None
        if ended is None or address is None:
            return task
        url = self._text(Owner(task.queue, task.tenant, ended.id), NOTIFY, address)
        return replace(task, payload_json=dump_json({"ended": ended._replace(url=url)._asdict()}))

    def rotate(self) -> str:
        """Seal with a new data key from now on; those of before stay, to open what they sealed. Answers its id."""
        made = self._new()
        current = self._keys().current()
        return self._put(made, current.id if current else "").id

    def _opened_payload(self, task: Task) -> str:
        try:
            found = read_payload(task.payload_json)
            assert found  # noqa: S101 - for the type: it begins as one
            values = json.loads(self._text(Owner(task.queue, task.tenant, task.id), PAYLOAD, found))
            return dump_json(restore_hidden(json.loads(found.shown), values))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise SealBroken(DAMAGED) from error

    def _sealed(self, task: NewTask, key: str, cipher: "AesGcm") -> NewTask:
        owner = Owner(task.queue, task.tenant, task.id)

        def seal(field: str, text: str, shown: str) -> str:
            sealed = cipher.encrypt(text.encode(), self._bound(owner, field, shown))
            return f"{key}.{base64.urlsafe_b64encode(sealed).decode().rstrip('=')}"

        if hidden := _hidden_in(task):
            made = seal(PAYLOAD, dump_json(hidden.values), dump_json(hidden.shown))
            task = task._replace(payload=sealed_payload(made, hidden.shown))
        if is_url(task.notify):
            notify = Notify.of(task.notify)
            if shown := hidden_in_address(notify.address):
                address = sealed_address(seal(NOTIFY, notify.address, shown), shown)
                task = task._replace(notify=notify._replace(address=address).text())
        return task

    def _text(self, owner: Owner, field: str, sealed: SealedText) -> str:
        key, _, packed = sealed.seal.partition(".")
        try:
            body = base64.b64decode(packed + "=" * (-len(packed) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise SealBroken(DAMAGED) from error
        cipher = self._open.get(key) or self._cipher_of(key, self._wrapped(key))
        return cipher.decrypt(body, self._bound(owner, field, sealed.shown)).decode()

    def _bound(self, owner: Owner, field: str, shown: str) -> bytes:
        """The text that a seal is bound to: whose it is, and what is shown beside it. No name has a NUL in it."""
        return "\0".join((self._namespace, *owner, field, shown)).encode()

    def _wrapped(self, key: str) -> bytes:
        if self._wrapping is None:
            raise SealUnavailable(NO_KEY)
        wrapped = self._keys().get(key)
        if wrapped is None:
            raise SealBroken(f"the sealed credentials of this task cannot be opened: the ledger has no data key {key}")
        return wrapped

    def _current(self, key: WrappedKey) -> "AesGcm":
        try:
            return self._cipher_of(key.id, key.wrapped)
        except SealBroken as error:  # no task's fault: it is not added, and may be sent again
            raise SealUnavailable(f"{error}: set the key that made it, or run `duecourse rotate`") from error

    def _cipher_of(self, key: str, wrapped: bytes) -> "AesGcm":
        """The cipher of a data key, which one thread unwraps; those that wait for it meanwhile share its failure."""
        before = self._problem
        if key not in self._open:
            with self._unwrapping():
                if key not in self._open:
                    self._open[key] = self._unwrapped(wrapped, before)
        return self._open[key]

    def _unwrapped(self, wrapped: bytes, before: SealUnavailable | None) -> "AesGcm":
        if self._wrapping is None:
            raise SealUnavailable(NO_KEY)
        if self._problem is not None and self._problem is not before:
            raise SealUnavailable(str(self._problem))
        try:
            return self._cipher(self._wrapping().unwrap(wrapped))
        except SealUnavailable as error:
            self._problem = error
            raise

    def _unwrapping(self) -> threading.Lock:
        """The lock of who unwraps; in a forked child a new one, for the thread that held its parent's is not there."""
        if self._process != os.getpid():
            self._process, self._lock = os.getpid(), threading.Lock()
        return self._lock

    def _make(self) -> WrappedKey:
        """The first data key; one that a failover has lost from the ledger is put back."""
        return self._put(self._sealing or self._new(), "")

    def _new(self) -> WrappedKey:
        if self._wrapping is None:
            raise SealUnavailable(NO_KEY)
        made = self._wrapping().new()
        key = WrappedKey(secrets.token_hex(8), made.wrapped)
        self._open[key.id] = self._cipher(made.plain)
        return key

    def _put(self, key: WrappedKey, instead_of: str) -> WrappedKey:
        current = self._keys().put(key, instead_of)
        if current.id != key.id:
            self._open.pop(key.id, None)  # another process was quicker
        return current


def _has_hidden_address(task: NewTask) -> bool:
    """True if a view would hide a part of the address of the task's notification."""
    return bool(task.notify and is_url(task.notify) and hidden_in_address(Notify.of(task.notify).address))


def _hides(task: NewTask) -> bool:
    return _has_hidden_address(task) or _hidden_in(task) is not None


def _hidden_in(task: NewTask) -> Hidden | None:
    return hidden_in(task.payload, task.kind, KNOWN if task.queue.startswith(QUEUE_PREFIX) else "")


def _rejection(field: str, hidden: Hidden) -> InvalidInput:
    return InvalidInput(bounded([FieldError(name, REJECTED) for name in hidden_names(hidden.values, field)]))
