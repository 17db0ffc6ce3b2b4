"""Contents of reminders: read for the messages that name them, kept while there are such messages."""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache

from duecourse.domain.content import FIELDS, LOOK_MS, NAME, id_of, named_by
from duecourse.domain.outcomes import Again, Done, Outcome
from duecourse.domain.reminder import QUEUE
from duecourse.domain.task import Json, NewTask, Status, Task, dump_json
from duecourse.domain.times import format_instant
from duecourse.domain.values import replaced
from duecourse.engine.messages import sound
from duecourse.engine.tasks import require_room
from duecourse.errors import SealBroken, TaskDamaged, TaskNotFound
from duecourse.ports.tasks import Move, Reply, TaskStore

READ = 16
"""Number of contents that a process remembers: a drain has many messages of one reminder."""


class Contents:
    """Contents of reminders in one ledger; `opened` answers a task with the credentials that are sealed in it."""

    def __init__(self, store: TaskStore, opened: Callable[[Task], Task]) -> None:
        self._store = store
        self._opened = opened
        self._read = lru_cache(READ)(self._fetch)  # a content never changes under its id

    def whole(self, payload: Json, tenant: str) -> Json:
        """A message's opened payload with its content. Raises TaskNotFound where the ledger lacks that."""
        name = named_by(payload)
        if not name:
            return payload
        rest = {field: value for field, value in payload.items() if field != NAME}
        return {**self._read(id_of(payload["reminder"], name), tenant), **rest}

    def filled(self, message: Task) -> Task:
        """An opened message as its worker gets it: with its content, or as it is where the ledger lacks that.

        Raises StoreUnavailable and SealBroken.
        """
        payload = message.payload
        if not named_by(payload):
            return message
        try:
            return replaced(message, payload_json=dump_json(self.whole(payload, message.tenant)))
        except TaskNotFound:
            return message

    def shown(self, message: Task) -> Json:
        """Content of a message as readers see it, without credentials. Raises TaskNotFound."""
        payload = message.payload
        if name := named_by(payload):
            payload = self._find(id_of(message.group, name), message.tenant).payload
        return {field: payload[field] for field in FIELDS}

    def _fetch(self, id: str, tenant: str) -> Json:
        return self._opened(self._find(id, tenant)).payload

    def _find(self, id: str, tenant: str) -> Task:
        task = self._store.get(QUEUE, id, tenant)
        if task is None:
            raise TaskNotFound(id, QUEUE, tenant, what="content")
        if not isinstance(task.payload, dict) or not task.payload.keys() >= set(FIELDS):
            raise TaskDamaged("the templates and data of this reminder are damaged: add the reminder again")
        return task

    def keep(self, content: NewTask) -> None:
        """Add a content's task. Raises QuotaExceeded and BeyondQuota.

        One that is there may be about to end: it is kept for a day now, with messages or without. A move is no add: a
        reminder that waits for its quota would use that up by its content, each time that it is sent again.
        """
        if self._stands(content):
            [moved] = self._store.move(QUEUE, [Move(content.id, delay_ms=LOOK_MS)], content.tenant)
            if moved is Reply.OK:
                return
        require_room(self._store.add([content]), *FIELDS)

    def _stands(self, content: NewTask) -> bool:
        try:
            found = self._find(content.id, content.tenant)
            return found.status is Status.SCHEDULED and bool(self._opened(found).payload == json.loads(content.payload))
        except (TaskNotFound, TaskDamaged, SealBroken):
            return False

    def restore(self, content: NewTask) -> None:
        """Add a content's task if it is gone, though its messages are there. Raises as `keep` does."""
        found = self._store.get(QUEUE, content.id, content.tenant)
        if not found or found.status not in (Status.SCHEDULED, Status.LEASED):
            self.keep(content)

    def look_soon(self, messages: Sequence[Task]) -> None:
        """Have the contents of cancelled messages looked at soon: the ledger need not keep them up to the start."""
        for name in {named_by(message.payload) for message in sound(messages)} - {""}:
            id = id_of(messages[0].group, name)
            self._store.move(QUEUE, [Move(id, delay_ms=LOOK_MS)], messages[0].tenant)

    def look(self, task: Task) -> Outcome:
        """Work of a content's task: it ends once the ledger has no message, in any state, that needs the content."""
        messages = sound(self._store.group(QUEUE, task.payload["reminder"], task.tenant))
        needing = [message for message in messages if id_of(message.group, named_by(message.payload)) == task.id]
        if not needing:
            return Done()
        last = max(message.state["starts_at"] for message in needing)
        return Again(at=format_instant(max(last, task.claimed_at) + LOOK_MS))
