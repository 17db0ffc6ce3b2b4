"""Sealing of the credentials in tasks as they are added, and opening just before a task is worked."""

import base64
import binascii
import json
import logging
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from duecourse.domain import seals
from duecourse.domain.notification import Notify, ended_of, is_notification, is_url
from duecourse.domain.query import KNOWN, QUEUE_PREFIX
from duecourse.domain.task import SEALED, Json, NewTask, Shard, Task, dump_json
from duecourse.domain.values import replaced
from duecourse.errors import FieldError, InvalidInput, SealBroken, SealUnavailable, bounded
from duecourse.ports.seals import Cipher, SealKeys, WrappedKey, Wrapping
from duecourse.ports.store import Store
from duecourse.ports.tasks import AddReply

log = logging.getLogger("duecourse.seals")

PAYLOAD, NOTIFY = "payload", "notify"
"""Fields that are sealed, each for itself."""
REJECTED = (
    "holds a credential, or a value that is shown as one, and no key to seal it is set here: "
    "name the credentials by `auth`, or set DUECOURSE_SEAL_KEY"
)
NO_KEY = "DUECOURSE_SEAL_KEY is not set here, so the sealed credentials of this task wait"
DAMAGED = "the sealed credentials of this task cannot be opened: they are damaged, or belong to another task"


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
        keys: Callable[[], SealKeys],
        wrapping: Callable[[], Wrapping] | None,
        cipher: Callable[[bytes], Cipher],
    ) -> None:
        self._namespace = namespace
        self._keys = keys
        self._wrapping = wrapping
        self._cipher = cipher
        self._open: dict[str, Cipher] = {}
        self._sealing: WrappedKey | None = None
        self._process, self._lock = os.getpid(), threading.Lock()
        self._problem: SealUnavailable | None = None

    @property
    def are_possible(self) -> bool:
        """True if a key is set."""
        return self._wrapping is not None

    def check(self, field: str, value: Json, kind: str = "") -> None:
        """Return if this part of a request may be added. Raises InvalidInput, naming each credential without a key.

        A payload's `kind` says whether its `auth` is a name.
        """
        if self._wrapping is not None:
            return
        if hidden := seals.hidden_of(value, kind):
            raise _rejection(field, hidden)

    def check_task(self, task: NewTask) -> None:
        """The same for a task. A credential in the address of its notification counts."""
        if self._wrapping is not None:
            return
        if hidden := _hidden_in(task):
            raise _rejection("payload", hidden)
        if is_url(task.notify) and seals.hidden_in_address(Notify.of(task.notify).address):
            raise InvalidInput([FieldError("notify_done.url", REJECTED)])

    def sealed(self, tasks: Sequence[NewTask], shard_of: Callable[[NewTask], Shard]) -> Sequence[NewTask]:
        """The tasks as a ledger keeps them. Raises InvalidInput without a key, SealUnavailable and StoreUnavailable.

        Tasks stay in clear in shards that a program of an earlier version may still read: it would send a seal as it
        is. The log says so.
        """
        hiding = [task for task in tasks if _hides(task)]
        if not hiding:
            return tasks
        for task in hiding:
            self.check_task(task)
        shards = [shard_of(task) for task in hiding]
        state = self._keys().look(list(dict.fromkeys(shards)))
        ready = {id(task) for task, shard in zip(hiding, shards, strict=True) if shard in state.ready}
        if len(ready) < len(hiding):
            log.warning(
                "credentials of %d tasks are kept in clear, because the ledger is of an earlier version: "
                "run `duecourse upgrade`",
                len(hiding) - len(ready),
            )
        if not ready:
            return tasks
        current = state.current or self._make()
        cipher = self._current(current)
        self._sealing = current
        return [self._sealed(task, current.id, cipher) if id(task) in ready else task for task in tasks]

    def digest(self) -> Callable[[bytes], str]:
        """Hash, in hexadecimal, that nobody can make without the data key of now."""
        cipher = self._current(self._keys().look(()).current or self._make())
        return lambda text: cipher.digest(text).hex()

    def opened(self, task: Task) -> Task:
        """The task as it was added. Raises SealBroken, SealUnavailable and StoreUnavailable."""
        if task.payload_json.startswith(SEALED):
            return replaced(task, payload_json=self._opened_payload(task))
        ended = ended_of(task.payload) if is_notification(task.id) else None
        address = seals.read_address(ended.url) if ended else None
        if ended is None or address is None:
            return task
        url = self._text(Owner(task.queue, task.tenant, ended.id), NOTIFY, address)
        return replaced(task, payload_json=dump_json({"ended": ended._replace(url=url)._asdict()}))

    def rotate(self) -> str:
        """Seal with a new data key from now on; those of before stay, to open what they sealed. Answers its id."""
        made = self._new()
        current = self._keys().look(()).current
        return self._put(made, current.id if current else "").id

    def _opened_payload(self, task: Task) -> str:
        try:
            found = seals.read_payload(task.payload_json)
            assert found  # noqa: S101 - for the type: it begins as one
            values = json.loads(self._text(Owner(task.queue, task.tenant, task.id), PAYLOAD, found))
            return dump_json(seals.restored(json.loads(found.shown), values))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise SealBroken(DAMAGED) from error

    def _sealed(self, task: NewTask, key: str, cipher: Cipher) -> NewTask:
        owner = Owner(task.queue, task.tenant, task.id)

        def seal(field: str, text: str, shown: str) -> str:
            sealed = cipher.encrypt(text.encode(), self._bound(owner, field, shown))
            return f"{key}.{base64.urlsafe_b64encode(sealed).decode().rstrip('=')}"

        if hidden := _hidden_in(task):
            made = seal(PAYLOAD, dump_json(hidden.values), dump_json(hidden.shown))
            task = task._replace(payload=seals.sealed_payload(made, hidden.shown))
        if is_url(task.notify):
            notify = Notify.of(task.notify)
            if shown := seals.hidden_in_address(notify.address):
                address = seals.sealed_address(seal(NOTIFY, notify.address, shown), shown)
                task = task._replace(notify=notify._replace(address=address).text())
        return task

    def _text(self, owner: Owner, field: str, sealed: seals.SealedText) -> str:
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

    def _current(self, key: WrappedKey) -> Cipher:
        try:
            return self._cipher_of(key.id, key.wrapped)
        except SealBroken as error:  # no task's fault: it is not added, and may be sent again
            raise SealUnavailable(f"{error}: set the key that made it, or run `duecourse rotate`") from error

    def _cipher_of(self, key: str, wrapped: bytes) -> Cipher:
        """The cipher of a data key, which one thread unwraps; those that wait for it meanwhile share its failure."""
        before = self._problem
        if key not in self._open:
            with self._unwrapping():
                if key not in self._open:
                    self._open[key] = self._unwrapped(wrapped, before)
        return self._open[key]

    def _unwrapped(self, wrapped: bytes, before: SealUnavailable | None) -> Cipher:
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


def _hides(task: NewTask) -> bool:
    """True if a view would hide a part of the task."""
    if is_url(task.notify) and seals.hidden_in_address(Notify.of(task.notify).address):
        return True
    return _hidden_in(task) is not None


def _hidden_in(task: NewTask) -> seals.Hidden | None:
    return seals.hidden_in(task.payload, task.kind, KNOWN if task.queue.startswith(QUEUE_PREFIX) else "")


def _rejection(field: str, hidden: seals.Hidden) -> InvalidInput:
    return InvalidInput(bounded([FieldError(name, REJECTED) for name in seals.names(hidden.values, field)]))


def sealing(store: Store, seals: Seals) -> Store:
    """The same store for those who add tasks: credentials in them are sealed."""
    return cast(Store, SealingStore(store, seals))


class SealingStore:
    """The verb that adds tasks, with their credentials sealed; all others are the store's own."""

    def __init__(self, store: Store, seals: Seals) -> None:
        self._store = store
        self._seals = seals

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def add(self, tasks: Sequence[NewTask], **options: Any) -> list[AddReply]:
        """See TaskStore. Raises InvalidInput too, for credentials where no key is set."""
        return self._store.add(self._seals.sealed(tasks, self._shard), **options)

    def _shard(self, task: NewTask) -> Shard:
        return self._store.shard_of(task.queue, task.id, task.group)
