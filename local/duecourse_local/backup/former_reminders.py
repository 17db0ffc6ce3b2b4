"""Contents of reminders in exports of 9d900a4, which kept templates and data in tasks of their own."""

from duecourse.base.json_text import Json, dump_json
from duecourse.errors import FieldError, InvalidInput, SealBroken, TaskDamaged
from duecourse.guard.seals import Seals
from duecourse.ledger import layout
from duecourse.ledger.record import BODY, HEAD, LENGTHS, LENGTHS_AT
from duecourse.ledger.reminder import CONTENT, KIND, QUEUE
from duecourse.ledger.task import SEALED, NewTask, Task

from .format import TaskLine

APART = "task.content"
"""Kind of a task that holds a content, which ends once no message of its reminder names it."""
NAME = "content"
"""Field in which a message names its content."""
MISSING = "names templates and data that the export lacks"
NO_KEY = "has credentials that are sealed anew with its templates and data: set DUECOURSE_SEAL_KEY"


class Contents:
    """Contents of the reminders of one export; the import puts each into the messages that name it.

    A first look through the file gathers them, for a content may come after its messages. `seals` opens the
    credentials in both, and seals them for the message.
    """

    def __init__(self, seals: Seals) -> None:
        self._seals = seals
        self._found: dict[str, Task] = {}
        self._first: dict[str, Task] = {}
        """The first message that names a content, by the content's stored id."""

    def gather(self, line: TaskLine) -> None:
        """Keep a content, and note which one a message needs."""
        if is_content(line):
            if _object_in(line.task()).keys() >= set(CONTENT):
                self._found[line.id] = line.task()
        elif content := _named_by(line):
            self._first.setdefault(content, line.task())

    def problems(self) -> list[FieldError]:
        """Problems of messages that cannot be made whole: of those of one reminder, the first."""
        return [problem for content, message in self._first.items() for problem in self._problems(message, content)]

    def _problems(self, message: Task, name: str) -> list[FieldError]:
        content = self._found.get(name)
        if content is None:
            return [FieldError(f"task {message.id}", MISSING)]
        is_closed = _is_sealed(message, content) and not self._seals.are_possible
        return [FieldError(f"task {message.id}", NO_KEY)] if is_closed else []

    def with_content(self, line: TaskLine) -> TaskLine:
        """The line; a message that names its content gets it into its payload. Raises InvalidInput."""
        name = _named_by(line)
        if not name:
            return line
        message = line.task()
        if problems := self._problems(message, name):
            raise InvalidInput(problems)
        try:
            payload = self._merged(message, self._found[name])
        except SealBroken as error:
            raise InvalidInput([FieldError(f"task {message.id}", str(error))]) from error
        record, body = with_payload(line.record, message.generation, payload.encode())
        return line.model_copy(update={"record": record, "payload": body})

    def _merged(self, message: Task, content: Task) -> str:
        if not _is_sealed(message, content):
            return _payload(message.payload, content.payload)
        opened = _payload(self._seals.opened(message).payload, self._seals.opened(content).payload)
        task = NewTask(message.id, KIND, opened, queue=QUEUE, tenant=message.tenant, group=message.group)
        [sealed] = self._seals.sealed([task])
        return sealed.payload


def is_content(line: TaskLine) -> bool:
    """True for a task that holds a content: an import leaves it out."""
    return line.queue == QUEUE and line.task().kind == APART


def with_payload(record: bytes, number: int, payload: bytes) -> tuple[bytes, bytes]:
    """A packed record without a lease and with another payload; and the payload if it is stored apart.

    `number` names the field of a payload apart: the task's generation, which no other record of its id has.
    """
    *others, size = LENGTHS.unpack_from(record, LENGTHS_AT)
    at = HEAD.size + sum(others)
    is_apart = len(payload) > layout.INSIDE
    inside = BODY.pack(number >> 32, number & 0xFFFFFFFF, len(payload)) if is_apart else payload
    flags = record[1] & ~layout.APART | (layout.APART if is_apart else 0)
    front = record[:1] + bytes([flags]) + record[2:LENGTHS_AT] + LENGTHS.pack(*others, len(inside))
    return front + record[HEAD.size : at] + inside + record[at + size :], payload if is_apart else b""


def _named_by(line: TaskLine) -> str:
    """Stored id of the content that a message names; "" for none."""
    if line.queue != QUEUE or line.task().kind != KIND:
        return ""
    message = line.task()
    name = _object_in(message).get(NAME)
    return f"{message.tenant}/{message.group}:{NAME}:{name}" if name else ""


def _object_in(task: Task) -> dict[str, Json]:
    """The payload as it is shown; {} for one that is damaged."""
    try:
        payload = task.payload
    except TaskDamaged:
        return {}
    return payload if isinstance(payload, dict) else {}


def _is_sealed(message: Task, content: Task) -> bool:
    return message.payload_json.startswith(SEALED) or content.payload_json.startswith(SEALED)


def _payload(message: Json, content: Json) -> str:
    """A message's payload as an add makes it."""
    texts = {field: content.get(field) for field in CONTENT}
    rest = {field: value for field, value in message.items() if field not in ("reminder", NAME)}
    return dump_json({"reminder": message.get("reminder"), **texts, **rest})
